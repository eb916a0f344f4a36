package main

import (
	"testing"

	"github.com/goverbs/goverbs/tools/examples/internal/run"
)

func TestMain(m *testing.M) { run.Main(m, main) }

func TestGuestKeyValue(t *testing.T) { run.Served(t, "127.0.0.1:7472", "500", "values read: 500") }
