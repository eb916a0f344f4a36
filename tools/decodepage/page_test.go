package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "github.com/goverbs/goverbs/tools/decode"
)

// builtSite compiles the decoder once for all tests. The Go tool does not see
// what that depends on; reading the program and importing the decoder tells it
// when results of these tests are no longer good.
var builtSite = sync.OnceValues(func() (*site, error) {
	if _, err := os.ReadFile("wasm/main.go"); err != nil {
		return nil, err
	}
	return buildSite(context.Background())
})

func testSite(t *testing.T) *site {
	t.Helper()
	s, err := builtSite()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestServe(t *testing.T) {
	s := testSite(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l, s) }()
	for name, contentType := range map[string]string{
		"": "text/html; charset=utf-8", "index.html": "text/html; charset=utf-8", "page.css": "text/css; charset=utf-8",
		"page.js": "text/javascript; charset=utf-8", "wasm_exec.js": "text/javascript; charset=utf-8", "decode.wasm": "application/wasm",
	} {
		r, err := http.Get("http://" + l.Addr().String() + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != 200 || len(b) == 0 || r.Header.Get("Content-Type") != contentType ||
			!strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("/%s: %v, %s, %d bytes, %v", name, err, r.Status, len(b), r.Header)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestServeRefuses(t *testing.T) {
	s := testSite(t)
	for _, c := range []struct {
		method, path string
		code         int
	}{{"GET", "/../go.mod", 404}, {"GET", "/page/", 404}, {"POST", "/index.html", 405}, {"HEAD", "/index.html", 200}} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.code {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.code)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "site")
	s := testSite(t)
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadDir(dir)
	if err != nil || len(got) != len(s.files) {
		t.Errorf("%d files, %v, want %d", len(got), err, len(s.files))
	}
}

// TestNothingExternal: no file of ours names another host.
func TestNothingExternal(t *testing.T) {
	for _, name := range []string{"index.html", "page.css", "page.js"} {
		b, err := page.ReadFile("page/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"http:", "https:", "//cdn", "@import", "url(", "innerHTML"} {
			if strings.Contains(string(b), bad) {
				t.Errorf("%s contains %q", name, bad)
			}
		}
	}
}

const remoteAccess = `> [166755.332323] infiniband mlx5_0: dump_cqe:272:(pid 0): dump error
> cqe
> [166755.332944] 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
> 00
> [166755.333574] 00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
> 00
> [166755.334202] 00000020: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
> 00
> [166755.334837] 00000030: 00 00 00 00 00 00 88 13 08 03 61 b3 1e a1 42
> d3
`

const retryThenFlushes = `NCCL WARN NET/IB : Got completion from peer 10.0.0.1<44206> with status=12 opcode=129 len=65536 vendor err 129 (Recv)
NCCL WARN NET/IB : Got completion from peer 10.0.0.1<44206> with status=5 opcode=32656 len=32659 vendor err 249 (Recv)
NCCL WARN NET/IB : Got completion from peer 10.0.0.1<44206> with status=5 opcode=32656 len=32659 vendor err 249 (Recv)
`

// TestPage pastes into the page in a browser, wide and narrow, and reads what it
// shows.
func TestPage(t *testing.T) {
	c := startChromium(t)
	srv := httptest.NewServer(testSite(t))
	defer srv.Close()
	for _, size := range []struct {
		name          string
		width, height int
	}{{"narrow", 380, 800}, {"wide", 1280, 900}} {
		t.Run(size.name, func(t *testing.T) {
			c.t = t
			c.width, c.height = size.width, size.height
			c.screen(size.width, size.height)
			c.call(nil, "Page.navigate", map[string]any{"url": srv.URL})
			c.wait("document.getElementById('summary')?.textContent.startsWith('Paste something')")

			c.paste(remoteAccess)
			c.wait("document.querySelectorAll('article').length == 1")
			c.shows("h2", "remote access error (status 10)")
			c.shows("dl", "0x88 (136), the peer answered: remote access error")
			c.shows("dl", "0x361b3 (221619)")
			c.shows("article", "Look at first")
			c.shows("#summary", "1 failed completion: 1 first error.")
			c.fits()
			c.shot("decode-" + size.name + ".png")

			c.paste(retryThenFlushes)
			c.wait("document.querySelectorAll('article').length == 3")
			c.shows("h2", "transport retry exceeded (status 12)")
			c.shows("details summary", "2 flushes")
			c.eval(nil, "document.querySelector('details').open = true")
			c.shows("details", "probably a consequence of the error in line 1")
			c.fits()
			c.shot("decode-" + size.name + "-flushes.png")

			c.paste("<img src=x onerror=alert(1)> CQE ERROR wr_id=1 status=12(transport retry counter exceeded) vendor_err=0xa qp_num=0x2e24")
			c.wait("document.querySelectorAll('article').length == 1")
			c.shows("dl", "not an mlx5 code")
			c.fits()

			c.paste("nothing of interest")
			c.wait("document.querySelectorAll('article').length == 0")
			c.shows("#summary", "No failed completion found")

			c.eval(nil, "document.getElementById('example').click()")
			c.wait("document.querySelectorAll('article').length == 2")
			c.eval(nil, "document.getElementById('clear').click()")
			c.wait("document.querySelectorAll('article').length == 0")
			c.shot("decode-" + size.name + "-empty.png")
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.asked {
		if !strings.HasPrefix(u, srv.URL+"/") && !strings.HasPrefix(u, "data:") && u != "about:blank" {
			t.Errorf("the page asked for %s", u)
		}
	}
	if len(c.asked) < 5 {
		t.Errorf("the page asked for %v only", c.asked)
	}
	if len(c.failed) > 0 {
		t.Errorf("errors in the page: %v", c.failed)
	}
}

// paste replaces what is in the text field, as a user would.
func (c *chromium) paste(text string) {
	c.t.Helper()
	c.eval(nil, "(() => { const t = document.getElementById('text'); t.focus(); t.select(); })()")
	c.call(nil, "Input.insertText", map[string]any{"text": text})
}

// shows fails the test unless an element of the kind shows the text.
func (c *chromium) shows(selector, text string) {
	c.t.Helper()
	var all string
	c.eval(&all, "[...document.querySelectorAll('"+selector+"')].map((e) => e.innerText).join('\\n')")
	if !strings.Contains(all, text) {
		c.t.Errorf("%s does not show %q:\n%s", selector, text, all)
	}
}

// fits fails the test if anything is wider than the screen.
func (c *chromium) fits() {
	c.t.Helper()
	var wide []string
	c.eval(&wide, "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !e.classList.contains('hidden')).map((e) => e.tagName + '.' + e.className)"+
		".concat(document.documentElement.scrollWidth > document.documentElement.clientWidth ? ['page ' + document.documentElement.scrollWidth] : [])")
	if len(wide) > 0 {
		c.t.Errorf("wider than the screen: %v", wide)
	}
}
