package hosts

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/slots"
)

func TestFaults(t *testing.T) {
	slots.Take(t)
	if os.Geteuid() != 0 {
		t.Skip("hosts are made of namespaces, which needs root")
	}
	wire := NewWire(t, netip.MustParsePrefix("172.30.9.0/24"))
	a, b := New(t, wire, "a", Options{OwnPayload: true}), New(t, wire, "b", Options{})

	t.Run("freeze", func(t *testing.T) {
		cmd := b.Command("sh", "-c", "while true; do date +%N; done")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		b.Freeze()
		if out := a.Run("busybox", "ping", "-c1", "-W10", b.IP.String()); !strings.Contains(out, " 0% packet loss") {
			t.Error("a frozen host's kernel does not answer")
		}
		b.Thaw()
		b.Freeze()
		b.Kill()
		if err := cmd.Wait(); err == nil {
			t.Error("what ran on a killed host ended well")
		}
		b.Boot()
		b.Run("true")
	})
	t.Run("disk", func(t *testing.T) {
		b.LimitDisk(16)
		b.FillDisk()
		if out, err := b.Try("sh", "-c", "echo something > /var/lib/coracle/x"); err == nil {
			t.Errorf("a full disk takes more: %s", out)
		}
		b.FreeDisk()
		b.Run("sh", "-c", "echo something > /var/lib/coracle/x")
	})
	t.Run("wipe", func(t *testing.T) {
		a.Run("sh", "-c", "echo something > /var/lib/coracle/x; echo something > /etc/x")
		a.Kill()
		a.Wipe()
		a.Boot()
		if out := a.Run("sh", "-c", "ls /var/lib/coracle; ls /etc/x || true"); out != "" {
			t.Errorf("left on a wiped host: %s", out)
		}
	})
}
