package machines

import (
	"os"
	"slices"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

// TestMachines boots two machines that reach each other, and reboots one.
func TestMachines(t *testing.T) {
	slots.Take(t)
	s := Open(t)
	a, b := s.Boot(t, "first", Options{}), s.Boot(t, "second", Options{})
	if a.IP() == b.IP() {
		t.Errorf("both machines have the address %s", a.IP())
	}
	if _, err := a.Try("busybox", "ping", "-c1", "-W2", b.IP()); err != nil {
		t.Error(err)
	}
	before := a.Files()
	if before[Bin] != "" || len(before) < 1000 {
		t.Errorf("%d files", len(before))
	}
	a.Write("/etc/it/is", "kept\n")
	a.Reboot()
	if got := a.Run("cat", "/etc/it/is"); got != "kept" {
		t.Errorf("after a reboot the file holds %q", got)
	}
	if _, err := a.TrySh("exit 7"); Code(err) != 7 {
		t.Errorf("exit code %d of %v", Code(err), err)
	}
	if got := Diff(before, a.Files()); !slices.Contains(got, "+ /etc/it/is") {
		t.Errorf("new is %q", got)
	}
	a.PullPlug()
	a.Run("test", "-x", Bin)
}

func TestDiff(t *testing.T) {
	got := Diff(Inventory{"same": "1", "gone": "1", "other": "1"}, Inventory{"same": "1", "new": "1", "other": "2"})
	if want := []string{"+ new", "- gone", "~ other: 1 -> 2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
