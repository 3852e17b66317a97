package bridgefilter

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// isolate gives the test a network and mounts of its own. What it returns fails the test at an error.
func isolate(t *testing.T) (must func(error)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // the thread ends with the test
	must = func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS))
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	return must
}

// TestLinks makes a bridge with ports.
func TestLinks(t *testing.T) {
	must := isolate(t)
	must(MarkPorts("cni0")) // there is none yet
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	must(netlink.LinkAdd(bridge))
	must(netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "machine", MasterIndex: bridge.Index}, VxlanId: 1, Port: 4789}))
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
	must(MarkPorts("cni0"))
	if group("old") != Group || group("new") == Group || group("other") == Group || group("machine") == Group {
		t.Errorf("the groups are %d, %d, %d and %d", group("old"), group("new"), group("other"), group("machine"))
	}
	must(Attach("cni0", "new"))
	if group("new") != Group || group("other") == Group {
		t.Errorf("the groups are %d and %d", group("new"), group("other"))
	}
}

// TestFailing: what goes wrong with the port of a pod stops it only while there are policies.
func TestFailing(t *testing.T) {
	must := isolate(t)
	must(Attach("cni0", "gone"))
	kernel := &nftables.Conn{}
	kernel.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: Table})
	must(kernel.Flush())
	if err := Attach("cni0", "gone"); err == nil {
		t.Error("attached a link that is not there")
	}
}

// TestWithoutModule: pods come on a machine without br_netfilter, even while there are policies.
func TestWithoutModule(t *testing.T) {
	must := isolate(t)
	must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}))
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "new"}, PeerName: "of-new"}))
	kernel := &nftables.Conn{}
	kernel.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: Table})
	must(kernel.Flush())
	must(unix.Mount("none", "/proc/sys/net", "tmpfs", 0, ""))
	if err := EnableNetfilter("cni0"); !errors.Is(err, ErrNoFilter) {
		t.Errorf("got %v", err)
	}
	must(Attach("cni0", "new"))
}

// TestFilter: a bridge that is set already is left alone, as all who listen for links hear of each change.
func TestFilter(t *testing.T) {
	must := isolate(t)
	err := EnableNetfilter("cni0") // there is none yet
	if errors.Is(err, ErrNoFilter) {
		t.Skip(err)
	}
	must(err)
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	must(netlink.LinkAdd(bridge))
	if netfilterEnabled(bridge.Index) {
		t.Error("a new bridge is taken for one that is set")
	}
	must(netlink.LinkSetUp(bridge)) // the kernel tells of no other
	heard, done := make(chan netlink.LinkUpdate, 100), make(chan struct{})
	defer close(done)
	must(netlink.LinkSubscribe(heard, done))
	const often = 10
	for range often {
		must(EnableNetfilter("cni0"))
	}
	if !netfilterEnabled(bridge.Index) {
		t.Error("the bridge is not set")
	}
	must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "last"}}))
	changes := 0
	for u := range heard {
		if u.Attrs().Name == "last" {
			break
		}
		changes++
	}
	if changes == 0 || changes >= often { // that it is up may be told too
		t.Errorf("the bridge was changed %d times", changes)
	}
}

// TestList: links that come or go while they are listed are no reason to know none.
func TestList(t *testing.T) {
	some := []netlink.Link{&netlink.Dummy{}}
	for busy, want := range map[int]error{listTries - 1: nil, listTries: netlink.ErrDumpInterrupted} {
		tries := 0
		got, err := list(func() ([]netlink.Link, error) {
			if tries++; tries <= busy {
				return some, netlink.ErrDumpInterrupted
			}
			return some, nil
		})
		if !errors.Is(err, want) || len(got) != 1 {
			t.Errorf("after %d tries: %v, %v", tries, got, err)
		}
	}
}
