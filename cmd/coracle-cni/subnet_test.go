package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
)

const goodSubnet = `{"podCIDRs":["10.42.3.0/24"],"clusterCIDRs":["10.42.0.0/16"],"mtu":1450}`

func TestAwaitSubnet(t *testing.T) {
	t.Run("already there", func(t *testing.T) {
		path := write(t, goodSubnet)
		s, err := awaitSubnet(path, 0)
		if err != nil || s.MTU != 1450 || s.PodCIDRs[0].String() != "10.42.3.0/24" {
			t.Errorf("got %+v, %v", s, err)
		}
	})
	t.Run("comes later", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "subnet.json")
		go func() {
			time.Sleep(20 * time.Millisecond)
			if os.WriteFile(path+".new", []byte(goodSubnet), 0o600) == nil {
				_ = os.Rename(path+".new", path)
			}
		}()
		if s, err := awaitSubnet(path, 10*time.Second); err != nil || s.MTU != 1450 {
			t.Errorf("got %+v, %v", s, err)
		}
	})
	t.Run("never comes", func(t *testing.T) {
		_, err := awaitSubnet(filepath.Join(t.TempDir(), "subnet.json"), time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), "waiting for the node's pod subnet") {
			t.Error(err)
		}
	})
	t.Run("nobody to write it", func(t *testing.T) {
		_, err := awaitSubnet(filepath.Join(t.TempDir(), "none", "subnet.json"), time.Minute)
		if err == nil || !strings.Contains(err.Error(), "is coracle running?") {
			t.Error(err)
		}
	})
	for name, bad := range map[string]string{"broken": "{", "empty": "", "no subnet": "{}", "no prefix": `{"podCIDRs":["10.42.3.0"]}`} {
		t.Run(name, func(t *testing.T) {
			path := write(t, bad)
			if _, err := awaitSubnet(path, time.Minute); err == nil || !strings.Contains(err.Error(), path) {
				t.Error(err)
			}
		})
	}
}

func TestAddUndoes(t *testing.T) {
	conf := strings.NewReplacer("/run/coracle/subnet.json", write(t, goodSubnet), "/var/lib/coracle/node/cni", t.TempDir()).Replace(goodConf)
	c, err := parseConf([]byte(conf))
	if err != nil {
		t.Fatal(err)
	}
	var deleted int
	broken := errors.New("no bridge today")
	p := plugin{bridge: skel.CNIFuncs{
		Add: func(*skel.CmdArgs) error { return broken },
		Del: func(*skel.CmdArgs) error { deleted++; return nil },
	}, tidy: func() error { return nil }}
	args := &skel.CmdArgs{ContainerID: "a", IfName: "eth0", StdinData: []byte(conf)}
	if err := p.add(args); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	if deleted != 1 {
		t.Errorf("the half-made link was deleted %d times", deleted)
	}
	if left := held(t, c.leases()); len(left) != 0 {
		t.Errorf("still leased: %v", left)
	}
}

// TestDelKeepsLease: an address is not given away while a link may still answer for it.
func TestDelKeepsLease(t *testing.T) {
	conf := strings.Replace(goodConf, "/var/lib/coracle/node/cni", t.TempDir(), 1)
	c, err := parseConf([]byte(conf))
	if err != nil {
		t.Fatal(err)
	}
	l := c.leases()
	if _, err := l.take("a", "eth0", prefixes("10.42.3.0/24")); err != nil {
		t.Fatal(err)
	}
	stuck := errors.New("stuck")
	p := plugin{bridge: skel.CNIFuncs{Del: func(*skel.CmdArgs) error { return stuck }}, tidy: func() error { return nil }}
	args := &skel.CmdArgs{ContainerID: "a", IfName: "eth0", StdinData: []byte(conf)}
	if err := p.del(args); !errors.Is(err, stuck) {
		t.Fatalf("got %v", err)
	}
	if left := held(t, l); len(left) != 1 {
		t.Errorf("leased: %v", left)
	}
	p.bridge.Del = func(*skel.CmdArgs) error { return nil }
	if err := p.del(args); err != nil { // no subnet file: not needed
		t.Fatal(err)
	}
	if left := held(t, l); len(left) != 0 {
		t.Errorf("still leased: %v", left)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "subnet.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
