package model_test

import (
	"strings"
	"testing"
)

// A doorbell that is rung before its record says how far the queue goes is a program's
// mistake. The device tells of it, and goes by the record.
func TestDoorbellBeforeRecord(t *testing.T) {
	w := newTwo(t, rc, cqOptions{}, qpOptions{}, usual)
	_, first := w.qa.put(0, signaled, 0) // does nothing
	record := w.qa.db[4:]
	store(record, 0)
	w.qa.ring(first)
	w.qa.scq.none()
	if v := w.m.Violations(); len(v) != 1 || !strings.Contains(v[0], "its record says 0x0: the record is written first") {
		t.Errorf("violations %q", v)
	}
	store(record, uint32(w.qa.pi))
	w.qa.ring(first)
	w.qa.scq.one()
	if v := w.m.Violations(); len(v) > 1 {
		t.Errorf("violations %q of a doorbell after its record", v)
	}
}
