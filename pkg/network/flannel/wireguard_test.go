package flannel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/flannel-io/flannel/pkg/backend"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run", "wireguard.key")
	now := time.Now()
	read := func() string {
		t.Helper()
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	key := ""
	for _, tt := range []struct {
		name string
		at   time.Time
		left time.Duration
		made bool
	}{
		{"first", now, keyLifetime, true},
		{"in use", now.Add(24 * time.Hour), keyLifetime - 24*time.Hour, false},
		{"with the clock set back", now.AddDate(-50, 0, 0), keyLifetime, false},
		{"too old", now.Add(keyLifetime + time.Minute), keyLifetime, true},
	} {
		left, err := ensureKey(file, tt.at)
		if err != nil || (left-tt.left).Abs() > time.Minute {
			t.Errorf("%s: may be used for %s, %v", tt.name, left, err)
		}
		if made := read() != key; made != tt.made {
			t.Errorf("%s: made: %t", tt.name, made)
		}
		key = read()
	}
	if len(key) != 44 {
		t.Errorf("the key is %q", key)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the key is open: %v, %v", info, err)
	}
}

// ran is a network that a test has registered.
type ran struct {
	backend.Network
	ended chan struct{}
}

func (r ran) Run(ctx context.Context) {
	<-ctx.Done()
	close(r.ended)
}

// TestKeyRotates: when the key is too old, the network ends and another begins with another key. It stays when coracle stops.
func TestKeyRotates(t *testing.T) {
	f := Flannel{KeyFile: filepath.Join(t.TempDir(), "key")}
	t.Setenv("WIREGUARD_KEY_FILE", "")
	if _, err := ensureKey(f.KeyFile, time.Now()); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-keyLifetime + 100*time.Millisecond)
	if err := os.Chtimes(f.KeyFile, old, old); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var keys []string
	var networks []ran
	err := f.wireguardNetwork(ctx, func(context.Context, *sync.WaitGroup) (backend.Network, error) {
		key, err := os.ReadFile(os.Getenv("WIREGUARD_KEY_FILE"))
		keys, networks = append(keys, string(key)), append(networks, ran{ended: make(chan struct{})})
		if len(keys) == 2 {
			stop()
		}
		return networks[len(networks)-1], err
	})
	if err != nil || len(keys) != 2 || keys[0] == keys[1] {
		t.Fatalf("the keys were %q, %v", keys, err)
	}
	select {
	case <-networks[0].ended:
	default:
		t.Error("the first network has not ended")
	}
}

// TestWithoutWireGuard: the error names what is missing and what to do.
func TestWithoutWireGuard(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	if netlink.LinkAdd(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "w0"}, LinkType: "wireguard"}) == nil {
		t.Skip("the kernel has WireGuard")
	}
	f := Flannel{Backend: "wireguard-native", ClusterCIDRs: []netip.Prefix{four}, ConfigFile: filepath.Join(t.TempDir(), "flannel.json"), KeyFile: filepath.Join(t.TempDir(), "key")}
	t.Setenv("WIREGUARD_KEY_FILE", "")
	config, err := f.write(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	link := &backend.ExternalInterface{Iface: &net.Interface{MTU: 1500}, ExtAddr: addr4.AsSlice()}
	err = f.wireguardNetwork(t.Context(), func(ctx context.Context, running *sync.WaitGroup) (backend.Network, error) {
		be, err := backend.NewManager(ctx, &manager{config: config}, link).GetBackend(config.BackendType)
		if err != nil {
			return nil, err
		}
		return be.RegisterNetwork(ctx, running, config)
	})
	if !errors.Is(err, errNoWireGuard) {
		t.Errorf("got %v", err)
	}
}
