package top

import (
	"bytes"
	"strings"
)

// maxHead is how long a request's line and headers may be.
const maxHead = 8 << 10

// A request is what a Server needs of an HTTP request.
type request struct{ method, path string }

// parseRequest reads the line and the headers of a request of HTTP/1.0 or 1.1,
// up to and with the empty line. status is 200, or says what is wrong.
func parseRequest(head []byte) (r request, status int) {
	const bad = 400
	text, ok := strings.CutSuffix(string(head), "\r\n\r\n")
	if !ok {
		return r, bad
	}
	lines := strings.Split(text, "\r\n")
	method, rest, ok1 := strings.Cut(lines[0], " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok1 || !ok2 || !token(method) || !visible(target) {
		return r, bad
	}
	switch {
	case version == "HTTP/1.1", version == "HTTP/1.0":
	case strings.HasPrefix(version, "HTTP/") && token(version[5:]):
		return r, 505
	default:
		return r, bad
	}
	if target[0] != '/' {
		// The whole URL, as proxies send it. Others are not for a server
		// that has contents of its own.
		const scheme = "http://"
		if len(target) < len(scheme) || !strings.EqualFold(target[:len(scheme)], scheme) {
			return r, bad
		}
		i := strings.IndexByte(target[len(scheme):], '/')
		if i <= 0 {
			return r, bad
		}
		target = target[len(scheme)+i:]
	}
	hosts := 0
	for _, l := range lines[1:] {
		name, value, ok := strings.Cut(l, ":")
		if !ok || !token(name) || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			return r, bad
		}
		if strings.EqualFold(name, "Host") {
			hosts++
		}
	}
	if hosts > 1 || hosts == 0 && version == "HTTP/1.1" {
		return r, bad
	}
	r.method = method
	r.path, _, _ = strings.Cut(target, "?")
	return r, 200
}

// token says whether s is a token of HTTP.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// visible says whether s is all printable ASCII characters, none a space.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// headEnd is where the head of a request ends in what came so far, or -1.
func headEnd(b []byte) int {
	i := bytes.Index(b, []byte("\r\n\r\n"))
	if i < 0 {
		return -1
	}
	return i + 4
}
