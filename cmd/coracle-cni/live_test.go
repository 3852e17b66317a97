package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"
)

// insideEnv is set in the live test's second run, the one within namespaces of its own.
const insideEnv = "CORACLE_CNI_TEST_INSIDE"

// TestLive runs the plugins as a runtime does, with real links, in namespaces of its own.
func TestLive(t *testing.T) {
	plugins, err := filepath.Abs(filepath.Join("..", "..", "build", runtime.GOARCH, "payload", "cni"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(plugins); err != nil || os.Getuid() != 0 {
		t.Skip("needs root and what `make build` makes")
	}
	if os.Getenv(insideEnv) == "" {
		inside := exec.Command(os.Args[0], "-test.run=^TestLive$", "-test.v")
		inside.Env = append(os.Environ(), insideEnv+"=1")
		inside.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
		out, err := inside.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	h := newLiveHost(t, plugins)
	t.Run("dual stack", h.dualStack)
	t.Run("an inherited address is reachable at once", h.inherited)
	t.Run("host port and bandwidth", h.wishes)
	t.Run("a failed add leaves nothing", h.failed)
}

// liveHost is this process' namespace as a node.
type liveHost struct{ dir, plugins string }

func newLiveHost(t *testing.T, plugins string) *liveHost {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	return &liveHost{dir: t.TempDir(), plugins: plugins}
}

// pod makes a network namespace and returns the path that holds it.
func (h *liveHost) pod(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "", unix.MS_BIND, "")
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return path
}

func (h *liveHost) subnet(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, "subnet.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// call runs the plugin for a verb, with the result of ADD as previous result where there is one.
func (h *liveHost) call(verb, pod string, prev json.RawMessage) ([]byte, error) {
	conf := map[string]any{
		"cniVersion": "1.1.0", "name": "coracle", "type": "coracle", "bridge": "cni0",
		"subnetFile": filepath.Join(h.dir, "subnet.json"), "dataDir": filepath.Join(h.dir, "leases"),
	}
	if strings.Contains(pod, "wishes") {
		conf["runtimeConfig"] = map[string]any{
			"portMappings": []map[string]any{{"hostPort": 18080, "containerPort": 80, "protocol": "tcp"}},
			"bandwidth":    map[string]any{"IngressRate": 8_000_000, "IngressBurst": math.MaxUint32, "EgressRate": 40_000_000, "EgressBurst": math.MaxUint32},
		}
	}
	if prev != nil {
		conf["prevResult"] = prev
	}
	data, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(h.plugins, "coracle"))
	cmd.Stdin = strings.NewReader(string(data))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+filepath.Base(pod), "CNI_NETNS="+pod,
		"CNI_IFNAME=eth0", "CNI_PATH="+h.plugins)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", verb, err, out)
	}
	return out, nil
}

// add attaches a pod and returns its addresses.
func (h *liveHost) add(t *testing.T, pod string) ([]net.IP, json.RawMessage) {
	t.Helper()
	began := time.Now()
	out, err := h.call("ADD", pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ADD took %s", time.Since(began).Round(time.Millisecond))
	var result current.Result
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatal(err)
	}
	var ips []net.IP
	for _, ip := range result.IPs {
		ips = append(ips, ip.Address.IP)
	}
	return ips, out
}

func (h *liveHost) del(t *testing.T, pod string) {
	t.Helper()
	if _, err := h.call("DEL", pod, nil); err != nil {
		t.Error(err)
	}
}

// reachable fails the test unless a pod answers soon. No pod listens: a refusal is its answer.
func reachable(t *testing.T, ip net.IP) {
	t.Helper()
	_, err := net.DialTimeout("tcp", net.JoinHostPort(ip.String(), "80"), 5*time.Second)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s does not answer: %v", ip, err)
	}
}

func (h *liveHost) dualStack(t *testing.T) {
	h.subnet(t, `{"podCIDRs":["10.42.3.0/24","fd00:42::/64"],"mtu":1450}`)
	// The node makes the bridge before there are pods, with an IPv6 address that can be used at once.
	for _, command := range []string{"link add cni0 mtu 1450 type bridge", "link set cni0 up", "addr add fd00:42::1/64 dev cni0 nodad"} {
		if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", command, err, out)
		}
	}
	a, b := h.pod(t, "a"), h.pod(t, "b")
	first, result := h.add(t, a)
	second, _ := h.add(t, b)
	for _, ip := range append(first, second...) {
		reachable(t, ip)
	}
	if out, err := exec.Command("nsenter", "--net="+a, "cat", "/proc/sys/net/ipv6/conf/eth0/accept_ra").CombinedOutput(); err != nil || string(out) != "0\n" {
		t.Errorf("a pod listens to routers: accept_ra is %q, %v", out, err)
	}
	if _, err := h.call("CHECK", a, result); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(h.dir, "subnet.json")); err != nil {
		t.Fatal(err)
	}
	h.del(t, a)
	h.del(t, a)
	h.del(t, b)
	if left := held(t, leases{filepath.Join(h.dir, "leases"), "coracle", thisBoot}); len(left) != 0 {
		t.Errorf("still leased: %v", left)
	}
}

// inherited: the subnet has one address for pods, so that the second pod gets the first one's.
func (h *liveHost) inherited(t *testing.T) {
	h.subnet(t, `{"podCIDRs":["10.42.4.0/30"],"mtu":1450}`)
	first, second := h.pod(t, "first"), h.pod(t, "second")
	ips, _ := h.add(t, first)
	reachable(t, ips[0])
	h.del(t, first)
	again, _ := h.add(t, second)
	if !again[0].Equal(ips[0]) {
		t.Fatalf("got %s, want %s", again[0], ips[0])
	}
	reachable(t, again[0])
	h.del(t, second)
}

// wishes: a pod gets its host port and shapers, and they go with it, also without the result of ADD, and after an ADD that failed.
func (h *liveHost) wishes(t *testing.T) {
	h.subnet(t, `{"podCIDRs":["10.42.6.0/24"],"mtu":1450}`)
	state := func() (rules, shapers string) {
		nft, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, nft)
		}
		links, err := exec.Command("tc", "qdisc", "show").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, links)
		}
		return string(nft), string(links)
	}
	if rules, shapers := state(); strings.Contains(rules, "18080") || strings.Contains(shapers, "tbf") {
		t.Fatalf("it is there before: %s\n%s", rules, shapers)
	}
	plain := h.pod(t, "plain")
	h.add(t, plain)
	for _, prev := range []bool{true, false} {
		pod := h.pod(t, fmt.Sprintf("wishes-%t", prev))
		ips, result := h.add(t, pod)
		rules, shapers := state()
		if !strings.Contains(shapers, "rate 8Mbit burst 128Kb") || !strings.Contains(shapers, "rate 40Mbit burst 500000b") {
			t.Errorf("shapers with bursts in which their rates hold: %s", shapers)
		}
		if !strings.Contains(rules, "18080") || !strings.Contains(rules, ips[0].String()+":80") || strings.Count(shapers, "tbf") != 2 {
			t.Errorf("host port 18080 to %s, and two shapers: %s\n%s", ips[0], rules, shapers)
		}
		if _, err := h.call("CHECK", pod, result); err != nil {
			t.Error(err)
		}
		if !prev {
			result = nil
		}
		for range 2 {
			if _, err := h.call("DEL", pod, result); err != nil {
				t.Error(err)
			}
		}
		if rules, shapers := state(); strings.Contains(rules, "18080") || strings.Contains(shapers, "tbf") {
			t.Errorf("left: %s\n%s", rules, shapers)
		}
	}
	h.del(t, plain)
	if left := held(t, leases{filepath.Join(h.dir, "leases"), "coracle", thisBoot}); len(left) != 0 {
		t.Errorf("still leased: %v", left)
	}
}

func (h *liveHost) failed(t *testing.T) {
	h.subnet(t, `{"podCIDRs":["10.42.5.0/24"],"mtu":1450}`)
	if _, err := h.call("ADD", filepath.Join(h.dir, "gone"), nil); err == nil {
		t.Error("a pod without namespace was added")
	}
	if left := held(t, leases{filepath.Join(h.dir, "leases"), "coracle", thisBoot}); len(left) != 0 {
		t.Errorf("still leased: %v", left)
	}
}
