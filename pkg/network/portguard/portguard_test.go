package portguard

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// resultFor is the result of the bridge plugin and one after it for a pod.
func resultFor(port, mac string, ips ...string) string {
	var list []string
	for _, ip := range ips {
		list = append(list, `{"interface":2,"address":"`+ip+`"}`)
	}
	return fmt.Sprintf(`{"cniVersion":"1.0.0","interfaces":[{"name":"cni0","mac":"0a:58:0a:2a:03:01"},{"name":%q,"mac":"2e:00:00:00:00:01"},
		{"name":"eth0","mac":%q,"sandbox":"/run/netns/n1"},{"name":"bwp1","mac":"2e:00:00:00:00:02"}],"ips":[%s]}`, port, mac, strings.Join(list, ","))
}

func TestPortOf(t *testing.T) {
	mac, _ := net.ParseMAC("0a:58:0a:2a:03:02")
	want := Port{Name: "veth1", MAC: mac, IPs: []netip.Addr{netip.MustParseAddr("10.42.3.2"), netip.MustParseAddr("fd42::2")}}
	got, err := PortOf([]byte(resultFor("veth1", mac.String(), "10.42.3.2/24", "fd42::2/64")), "cni0")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"nothing": `null`, "no JSON": `{`, "another bridge": strings.ReplaceAll(resultFor("veth1", mac.String(), "10.42.3.2/24"), "cni0", "br0"),
		"no address": resultFor("veth1", mac.String()), "no MAC": resultFor("veth1", "", "10.42.3.2/24"),
	} {
		if got, err := PortOf([]byte(text), "cni0"); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestExempt(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "": false, "True": false, "1": false} {
		if Exempt(map[string]string{Annotation: value}) != want {
			t.Errorf("%q: it is exempt is %v", value, !want)
		}
	}
	if Exempt(map[string]string{"allow-spoofing": "true"}) {
		t.Error("another annotation exempts a pod")
	}
}

// isolate gives the test a network of its own, with the kernel's nft tables.
func isolate(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	if err := Restore(t.TempDir(), "cni0"); nft.Unsupported(err) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nft", "list", "table", "bridge", "coracle-ports").CombinedOutput()
	if err != nil {
		t.Skipf("nft: %v: %s", err, out)
	}
	return string(out)
}

// TestTable: pods come and go, and the table is made again by whoever notices that it is gone.
func TestTable(t *testing.T) {
	isolate(t)
	p, err := PortOf([]byte(resultFor("veth1", "0a:58:0a:2a:03:02", "10.42.3.2/24", "fd42::2/64")), "cni0")
	if err != nil {
		t.Fatal(err)
	}
	all := []string{`elements = { "veth1" }`, `"veth1" . 0a:58:0a:2a:03:02 . 10.42.3.2`, `"veth1" . 0a:58:0a:2a:03:02 . fd42::2`,
		`"veth1" . 0a:58:0a:2a:03:02 . fe80::858:aff:fe2a:302`}
	expect := func(when string, want bool) {
		t.Helper()
		now := list(t)
		for _, e := range all {
			if strings.Contains(now, e) != want {
				t.Errorf("%s: want %s: %t in\n%s", when, e, want, now)
			}
		}
		if rules := strings.Count(now, " drop\n"); rules != 5 {
			t.Errorf("%s: %d rules drop:\n%s", when, rules, now)
		}
	}
	for range 2 {
		if err := Add(p); err != nil {
			t.Fatal(err)
		}
		expect("after it came", true)
	}
	if err := Restore(t.TempDir(), "cni0"); err != nil {
		t.Fatal(err)
	}
	expect("after a start of the node", true)
	if err := nft.Remove("bridge coracle-ports"); err != nil {
		t.Fatal(err)
	}
	if err := Add(p); err != nil {
		t.Fatal(err)
	}
	expect("without a table", true)
	for range 2 {
		if err := Remove(p); err != nil {
			t.Fatal(err)
		}
		expect("after it went", false)
	}
	here := p
	here.Name = "lo"
	for _, e := range []Port{p, here} {
		if err := Add(e); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Tidy(); err != nil {
			t.Fatal(err)
		}
		expect("when its port was gone", false)
		if now := list(t); strings.Count(now, `"lo"`) != 4 {
			t.Errorf("the port that exists lost addresses:\n%s", now)
		}
	}
	if err := nft.Remove("bridge coracle-ports"); err != nil {
		t.Fatal(err)
	}
	if err := Remove(p); err != nil {
		t.Error(err)
	}
}

// TestRestore reads what the runtime remembers.
func TestRestore(t *testing.T) {
	isolate(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pod":     `{"kind":"cniCacheV1","capabilityArgs":{"portMappings":[]},"result":` + resultFor("lo", "0a:58:0a:2a:03:02", "10.42.3.2/24") + `}`,
		"router":  `{"capabilityArgs":{"io.kubernetes.cri.pod-annotations":{"coracle.io/allow-spoofing":"true"}},"result":` + resultFor("lo", "0a:58:0a:2a:03:03", "10.42.3.3/24") + `}`,
		"gone":    `{"result":` + resultFor("veth9", "0a:58:0a:2a:03:04", "10.42.3.4/24") + `}`,
		"damaged": `{"result":`,
		"other":   `{"result":{"cniVersion":"1.0.0"}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Restore(dir, "cni0"); err != nil {
		t.Fatal(err)
	}
	now := list(t)
	if !strings.Contains(now, `"lo" . 0a:58:0a:2a:03:02 . 10.42.3.2`) || strings.Contains(now, "10.42.3.3") || strings.Contains(now, "10.42.3.4") {
		t.Errorf("the table is\n%s", now)
	}
	if err := Restore(filepath.Join(dir, "missing"), "cni0"); err != nil {
		t.Errorf("before the first pod: %v", err)
	}
}

// TestRestoreMany restores more pods than a node has by default.
func TestRestoreMany(t *testing.T) {
	isolate(t)
	dir := t.TempDir()
	const pods = 250
	for i := range pods {
		name, hw := fmt.Sprintf("veth%d", i), fmt.Sprintf("0a:58:0a:2a:03:%02x", i)
		if i%2 == 0 {
			pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: fmt.Sprintf("veth%d", i+1)}
			if err := netlink.LinkAdd(pair); err != nil {
				t.Fatal(err)
			}
		}
		text := `{"result":` + resultFor(name, hw, fmt.Sprintf("10.42.3.%d/24", i), fmt.Sprintf("fd42::%x/64", i), fmt.Sprintf("fd43::%x/64", i)) + `}`
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Restore(dir, "cni0"); err != nil {
		t.Fatal(err)
	}
	if now := list(t); strings.Count(now, " . 10.42.3.") != pods || strings.Count(now, " . fe80::") != pods || strings.Count(now, " . fd43::") != pods {
		t.Errorf("the table is\n%s", now)
	}
}
