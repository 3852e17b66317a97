package upgrade

import (
	"strings"
	"testing"
)

// TestBackWithPeers: a server that others have joined since the trial was armed does not go back in time.
func TestBackWithPeers(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.write(m.place().previous(dataName, "cluster.json"), "before")
	m.arm(func(s *State) { s.OldData = true })
	m.write(peersMark(m.dirs), "")
	never := 1000
	m.guard(&never, nil)
	if s := m.state(); s.Phase != Cancelled || !strings.Contains(s.Error, "several servers") {
		t.Errorf("%s: %s", s.Phase, s.Error)
	}
	if got := m.read(m.dirs.ServerCluster()); got != "old" {
		t.Errorf("the datastore is %q", got)
	}
}
