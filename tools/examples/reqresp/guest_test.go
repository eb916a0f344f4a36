package main

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/tools/examples/internal/run"
)

func TestMain(m *testing.M) { run.Main(m, main) }

func TestGuestRequestResponse(t *testing.T) {
	said := run.Served(t, "127.0.0.1:7471", "200", "200 requests answered")
	if strings.Count(said, "sent 200 requests") != 2 {
		t.Errorf("the server says:\n%s", said)
	}
}
