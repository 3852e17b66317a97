package install

import (
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/machines"
	"github.com/coracle-dev/coracle/test/slots"
)

// openRC is the init command of a machine without systemd. Debian has no init program for OpenRC; a shell reaps orphans
// too.
var openRC = []string{"/bin/sh", "-c", "openrc sysinit; openrc boot; openrc default; : >/run/up; while :; do sleep 3600 & wait $!; done"}

// TestOpenRC installs a server on a machine with OpenRC, kills it, stops and starts it, and uninstalls it.
func TestOpenRC(t *testing.T) {
	slots.Take(t)
	m := machines.Open(t).Boot(t, "alpine", machines.Options{Init: openRC})
	hosts.Eventually(t, 2*time.Minute, func() error { _, err := m.Try("test", "-e", "/run/up"); return err })
	before := take(m)
	out := m.Sh("CORACLE_NODE_LABEL='place=edge' " + machines.Bin + ` install -- server --kubelet-arg=v=2 2>&1`)
	if !strings.Contains(out, "Node alpine is Ready after") {
		t.Errorf("it says %s", out)
	}
	if out := m.Run("rc-update", "show", "default"); !strings.Contains(out, "coracle") {
		t.Errorf("the runlevel has %s", out)
	}
	if out := m.Run("kubectl", "get", "node", "--show-labels"); !strings.Contains(out, "place=edge") {
		t.Errorf("the node is %s", out)
	}
	if out := m.Run("coracle", "install"); !strings.Contains(out, "nothing was changed") {
		t.Errorf("again: %s", out)
	}
	if out := m.Run("coracle", "check", "cis"); !strings.Contains(out, "/etc/init.d/coracle has mode 700 and owner 0:0") {
		t.Errorf("the CIS benchmark: %s", out)
	}
	// OpenRC restarts a killed process.
	front := func() string { return m.Sh(`pgrep -o -f "^/usr/local/bin/coracle server"`) }
	killed := front()
	m.Run("kill", "-9", killed)
	hosts.Eventually(t, 3*time.Minute, func() error { _, err := m.TrySh(`rc-service --quiet coracle usable 2>/dev/null`); return err })
	if front() == killed {
		t.Error("it was not killed")
	}
	m.Sh("rc-service coracle stop; ! pgrep -f coracle-core; rc-service coracle start; rc-service coracle ready")
	m.Run("coracle-uninstall", "--yes")
	unchanged(t, m, before)
}
