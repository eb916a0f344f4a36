// Decodepage serves `verbs decode` as a web page, for local use: paste a log,
// see what its completion errors mean. The decoder runs in the browser, as
// WebAssembly; the page asks nobody but this command, and that for its own four
// files only.
//
//	go run ./tools/decodepage                 serve on 127.0.0.1:8420
//	go run ./tools/decodepage -o DIR          write the files, for any web server
//
// It needs the Go tool and this module's source, because it compiles the decoder
// when it starts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8420", "address to serve on")
	out := flag.String("o", "", "write the page's files to this directory instead of serving them")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "decodepage: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, *out); err != nil {
		fmt.Fprintf(os.Stderr, "decodepage: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr, out string) error {
	site, err := buildSite(ctx)
	if err != nil {
		return err
	}
	if out != "" {
		return site.write(out)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/\n", l.Addr())
	return serve(ctx, l, site)
}

// serve serves the site until the context ends.
func serve(ctx context.Context, l net.Listener, s *site) error {
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// write writes the files into a directory.
func (s *site) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, f := range s.files {
		if err := os.WriteFile(filepath.Join(dir, name), f.data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
