package uverbs

import "testing"

// A bind that is taken back leaves the window on the region that it was bound to,
// which so cannot be changed below it.
func TestBindTakenBackStaysOnItsRegion(t *testing.T) {
	r := newRig(t, false, changesAll)
	var mrs [2]*MR
	for i := range mrs {
		mrs[i] = register(t, r.pd, memoryFor(t, r, 4096).Bytes(), LocalWrite|RemoteWrite|MWBind)
		defer mrs[i].Close()
	}
	mw, err := r.pd.NewMW()
	if err != nil {
		t.Fatal(err)
	}
	defer mw.Close()
	sq := r.a.SendQueue()
	sq.BindMW(1, mw, mrs[0].All(), RemoteWrite)
	if err := sq.Flush(); err != nil {
		t.Fatal(err)
	}
	if w := wait(t, r.sendQ, 1)[0]; w.Status != StatusSuccess {
		t.Fatalf("bind: %+v", w)
	}
	sq.LocalInvalidate(2, mw)
	sq.BindMW(3, mw, mrs[1].All(), RemoteWrite)
	sq.Send(4, Span{})
	says(t, "a batch with a bad span", sq.Flush(), ErrBounds)
	says(t, "the bound region", mrs[0].Reregister(ChangeAccess(LocalWrite)), ErrInUse, "1 MW")
	if err := mrs[1].Reregister(ChangeAccess(LocalWrite)); err != nil {
		t.Errorf("the region of the bind that was taken back: %v", err)
	}
}
