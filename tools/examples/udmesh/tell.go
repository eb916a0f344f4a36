package main

import (
	"encoding/json"
	"log"
	"net"

	"github.com/goverbs/goverbs/uverbs"
)

// tell tells everybody who asks where our datagrams go.
func tell(l net.Listener, e uverbs.Endpoint) {
	for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
		json.NewEncoder(conn).Encode(e)
		conn.Close()
	}
}

// ask asks a node where its datagrams go.
func ask(addr string) (e uverbs.Endpoint) {
	conn := must(net.Dial("tcp", addr))
	defer conn.Close()
	must(0, json.NewDecoder(conn).Decode(&e))
	return e
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
