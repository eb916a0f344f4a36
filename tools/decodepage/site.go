package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed page
var page embed.FS

// site is the page's files in memory.
type site struct {
	files map[string]file
}

type file struct {
	contentType string
	data        []byte
}

// policy lets the page run its own scripts and ask for its own files, and
// nothing else: what is pasted cannot leave it.
const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; " +
	"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const wasmPackage = "github.com/goverbs/goverbs/tools/decodepage/wasm"

// buildSite compiles the decoder and gathers the files. The glue between Go and
// the browser comes with the Go release that compiles the decoder, and must be
// of the same.
func buildSite(ctx context.Context) (*site, error) {
	s := &site{files: make(map[string]file)}
	for name, contentType := range map[string]string{
		"index.html": "text/html; charset=utf-8",
		"page.css":   "text/css; charset=utf-8",
		"page.js":    "text/javascript; charset=utf-8",
	} {
		b, err := page.ReadFile("page/" + name)
		if err != nil {
			return nil, err
		}
		s.files[name] = file{contentType, b}
	}
	glue, err := wasmExec(ctx)
	if err != nil {
		return nil, err
	}
	s.files["wasm_exec.js"] = file{"text/javascript; charset=utf-8", glue}
	code, err := compile(ctx)
	if err != nil {
		return nil, err
	}
	s.files["decode.wasm"] = file{"application/wasm", code}
	return s, nil
}

// wasmExec reads wasm_exec.js of the installed Go release.
func wasmExec(ctx context.Context) ([]byte, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	dir := strings.TrimSpace(string(root))
	for _, where := range []string{"lib/wasm", "misc/wasm"} { // since Go 1.24; before
		b, err := os.ReadFile(filepath.Join(dir, where, "wasm_exec.js"))
		if !errors.Is(err, os.ErrNotExist) {
			return b, err
		}
	}
	return nil, fmt.Errorf("the Go release in %s has no wasm_exec.js; install its lib/wasm", dir)
}

// compile builds the decoder for the browser.
func compile(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "decodepage")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "decode.wasm")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, wasmPackage)
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("building %s: %w (run this inside the module)\n%s", wasmPackage, err, &said)
	}
	return os.ReadFile(out)
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = "index.html"
	}
	f, ok := s.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	if r.Method == http.MethodGet {
		w.Write(f.data)
	}
}
