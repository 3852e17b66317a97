package flannel

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestOverlayGone: an interface that was removed is noticed, also if it has been made again since.
func TestOverlayGone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	synctest.Test(t, func(t *testing.T) {
		runtime.LockOSThread() // the thread ends with the test
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Fatal(err)
		}
		here, err := netlink.NewHandle()
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		link := func() *netlink.Bridge { return &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "flannel.1"}} }
		if err := here.LinkAdd(link()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := awaitOverlayGone(ctx, func() bool { return true }, "flannel.1", "flannel-v6.1"); err != nil {
			t.Errorf("while it is there: %v", err)
		}
		began := time.Now()
		go func() {
			time.Sleep(12 * time.Second)
			if err := here.LinkDel(link()); err != nil {
				t.Error(err)
			}
			if err := here.LinkAdd(link()); err != nil {
				t.Error(err)
			}
		}()
		ready := func() bool { return time.Since(began) > 22*time.Second } // the interface under it comes back later
		if err := awaitOverlayGone(t.Context(), ready, "flannel.1", "flannel-v6.1"); err == nil || !strings.Contains(err.Error(), "flannel.1") || time.Since(began) != 25*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
