package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestResetAfterFaults resets a host on which something has gone wrong, again and again: each time it must be as
// before coracle, and a new start must work.
func TestResetAfterFaults(t *testing.T) {
	slots.Take(t)
	faults := []struct {
		name    string
		make    func(*testing.T, *hosts.Host, *hosts.Server)
		unknown []string // what of the inventory nobody can put right any more
	}{
		{"killed front", func(t *testing.T, _ *hosts.Host, s *hosts.Server) {
			signal(t, syscall.SIGKILL, s.FrontPID())
			_ = s.Wait(waitForEnd)
		}, nil},
		{"hung halves", func(t *testing.T, _ *hosts.Host, s *hosts.Server) {
			for _, half := range []string{"control-plane", "node"} {
				pid, err := s.ChildPID(half)
				if err != nil {
					t.Fatal(err)
				}
				signal(t, syscall.SIGSTOP, pid)
			}
		}, nil},
		{"damaged payload", func(t *testing.T, h *hosts.Host, s *hosts.Server) {
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			h.Run("sh", "-c", "for f in runc nft coracle-core containerd-shim-runc-v2; do rm -f /var/lib/coracle/data/*/$f; done")
		}, nil},
		{"damaged ledger", func(t *testing.T, h *hosts.Host, s *hosts.Server) {
			h.Run("sh", "-c", "echo '{' > /var/lib/coracle/ledger.json")
		}, []string{"mounts", "files", "directories"}}, // propagation and empty directories were noted there only
		{"reboot", func(_ *testing.T, h *hosts.Host, _ *hosts.Server) {
			h.Kill()
			h.Boot()
		}, []string{"links", "addresses", "nft tables", "mounts", "files", "directories"}}, // others lost what they had in the kernel and in /run
	}
	h := newFreshHost(t, "solo")
	h.Run("sh", "-c", "rm -rf /var/lib/coracle/* /etc/coracle /etc/cni /var/lib/cni /var/log/pods; nft add table inet foreign; ip link add foreign0 type bridge; mkdir -p /run/netns")
	before := takeInventory(h)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			h.For(t).CopyImages()
			s := h.For(t).Start()
			waitReady(t, h.For(t))
			startSleepers(t, h.For(t))
			f.make(t, h, s)

			h := h.For(t)
			out, err := h.TryCoracle("reset", "--yes")
			t.Logf("reset says:\n%s", out)
			if (err != nil) != (f.name == "damaged ledger") {
				t.Errorf("reset: %v", err)
			}
			if out := h.Coracle("reset", "--dry-run"); !strings.Contains(out, "nothing of coracle") {
				t.Errorf("left after reset:\n%s", out)
			}
			compareInventory(t, h, before, f.unknown...)
		})
	}
}

// TestResetOfNothing resets a host on which coracle never ran.
func TestResetOfNothing(t *testing.T) {
	slots.Take(t)
	h := newFreshHost(t, "solo")
	h.Run("sh", "-c", "rm -rf /var/lib/coracle/*")
	for _, args := range [][]string{{"reset", "--dry-run"}, {"reset", "--yes"}, {"reset"}} {
		if out := h.Coracle(args...); !strings.Contains(out, "nothing of coracle") {
			t.Errorf("%s says %q", fmt.Sprint(args), out)
		}
	}
}

// waitForEnd is how long a killed server may take to be gone.
const waitForEnd = 40 * time.Second

func signal(t *testing.T, sig syscall.Signal, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}
