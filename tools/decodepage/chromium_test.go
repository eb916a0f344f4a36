package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// chromium is a headless browser that is driven through two pipes: each message
// is JSON and ends with a zero byte.
type chromium struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      io.Writer
	session string
	width   int
	height  int

	mu      sync.Mutex
	next    int
	answers map[int]chan json.RawMessage
	asked   []string // every address that the browser asked for
	failed  []string // exceptions and console errors of the page
}

// message is a request, an answer or an event.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// findChromium is the browser's path, or "".
func findChromium() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	return ""
}

// startChromium starts the browser with one empty page. It ends with the test.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	path := findChromium()
	if path == "" {
		t.Skip("declared skip: no chromium on this machine")
	}
	toR, toW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromR, fromW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu",
		"--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--no-sandbox",
		"--user-data-dir="+filepath.Join(t.TempDir(), "profile"), "about:blank")
	cmd.ExtraFiles = []*os.File{toR, fromW}
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	toR.Close()
	fromW.Close()
	c := &chromium{t: t, cmd: cmd, in: toW, answers: make(map[int]chan json.RawMessage)}
	go c.read(fromR)
	t.Cleanup(func() {
		// Ask first, so that the browser's children end with it.
		if _, err := c.try("", "Browser.close", nil); err != nil {
			cancel()
		}
		toW.Close()
		cmd.Wait()
		cancel()
		fromR.Close()
	})
	var target struct{ TargetID string }
	c.call(&target, "Target.createTarget", map[string]any{"url": "about:blank"})
	var attached struct{ SessionID string }
	c.call(&attached, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true})
	c.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		c.call(nil, domain+".enable", nil)
	}
	return c
}

// read takes answers and events until the browser ends.
func (c *chromium) read(r io.Reader) {
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		b, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(b[:len(b)-1], &m) != nil {
			continue
		}
		c.mu.Lock()
		switch {
		case m.ID != 0:
			if m.Error != nil {
				m.Result = json.RawMessage(`{"failed":` + fmt.Sprintf("%q", m.Error.Message) + `}`)
			}
			c.answers[m.ID] <- m.Result
			delete(c.answers, m.ID)
		case m.Method == "Network.requestWillBeSent":
			var p struct{ Request struct{ URL string } }
			if json.Unmarshal(m.Params, &p) == nil {
				c.asked = append(c.asked, p.Request.URL)
			}
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded":
			c.failed = append(c.failed, string(m.Params))
		}
		c.mu.Unlock()
	}
}

// try sends a request and waits for its answer.
func (c *chromium) try(session, method string, params any) (json.RawMessage, error) {
	p, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	answer := make(chan json.RawMessage, 1)
	c.mu.Lock()
	c.next++
	id := c.next
	c.answers[id] = answer
	c.mu.Unlock()
	m := message{ID: id, SessionID: session, Method: method}
	if params != nil {
		m.Params = p
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if _, err := c.in.Write(append(b, 0)); err != nil {
		return nil, err
	}
	select {
	case r := <-answer:
		var failed struct{ Failed string }
		if json.Unmarshal(r, &failed) == nil && failed.Failed != "" {
			return nil, errors.New(failed.Failed)
		}
		return r, nil
	case <-time.After(60 * time.Second):
		return nil, errors.New("no answer")
	}
}

// call sends a request and decodes its answer.
func (c *chromium) call(result any, method string, params any) {
	c.t.Helper()
	r, err := c.try(c.session, method, params)
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	if result != nil {
		if err := json.Unmarshal(r, result); err != nil {
			c.t.Fatalf("%s: %v", method, err)
		}
	}
}

// eval evaluates an expression in the page.
func (c *chromium) eval(result any, expression string) {
	c.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	c.call(&r, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if r.ExceptionDetails != nil {
		c.t.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	if result != nil {
		if err := json.Unmarshal(r.Result.Value, result); err != nil {
			c.t.Fatalf("%s: %v", expression, err)
		}
	}
}

// wait waits until an expression is true.
func (c *chromium) wait(expression string) {
	c.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var ok bool
		if c.eval(&ok, "!!("+expression+")"); ok {
			return
		}
	}
	c.t.Fatalf("not within a minute: %s", expression)
}

// screen sets the size of the browser's window, in CSS pixels.
func (c *chromium) screen(width, height int) {
	c.t.Helper()
	c.call(nil, "Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// shot writes a picture of the page into the directory that the environment
// variable names, if it does.
func (c *chromium) shot(name string) {
	c.t.Helper()
	dir := os.Getenv("DECODEPAGE_SHOTS")
	if dir == "" {
		return
	}
	// The whole page: a screen that is as high as it.
	var height int
	c.eval(&height, "document.documentElement.scrollHeight")
	c.screen(c.width, height)
	var r struct{ Data []byte }
	c.call(&r, "Page.captureScreenshot", map[string]any{})
	c.screen(c.width, c.height)
	if err := os.WriteFile(filepath.Join(dir, name), r.Data, 0o644); err != nil {
		c.t.Fatal(err)
	}
}
