package podlink

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestLinks makes a bridge with a port in a network namespace of the test's own.
func TestLinks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // the thread ends with the test
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Unshare(unix.CLONE_NEWNET))
	must(errors.Join(Adopt("cni0"), Filter("cni0"))) // there is none yet
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	must(netlink.LinkAdd(bridge))
	for _, name := range []string{"old", "new", "other"} {
		must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "of-" + name}))
	}
	group := func(name string) uint32 {
		link, err := netlink.LinkByName(name)
		must(err)
		return link.Attrs().Group
	}
	old, err := netlink.LinkByName("old")
	must(err)
	must(netlink.LinkSetMaster(old, bridge))
	must(Adopt("cni0"))
	if group("old") != Group || group("new") == Group || group("other") == Group {
		t.Errorf("the groups are %d, %d and %d", group("old"), group("new"), group("other"))
	}
	must(Attach("cni0", fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), "of-new"))
	if group("new") != Group || group("other") == Group {
		t.Errorf("the groups are %d and %d", group("new"), group("other"))
	}
	if err := Attach("cni0", fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), "gone"); err == nil {
		t.Error("attached a link that is not there")
	}
}
