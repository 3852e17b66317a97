package authorities

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
	"github.com/coracle-dev/coracle/test/fakeetcd"
)

const prefix = "/registry"

// cluster has two servers. The first, on which commands run, follows the record at once, and the second when it is waited for.
type cluster struct {
	*testing.T
	etcd    *fakeetcd.Etcd
	client  *clientv3.Client
	servers []config.Config
	ids     map[string]bool // the authorities that were made
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, ids: map[string]bool{}}
	c.etcd, c.client = fakeetcd.Client(t.Context())
	for i := range 2 {
		root := t.TempDir()
		address := netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		cfg := config.Config{
			Role: config.Server, Dirs: paths.Dirs{Data: root + "/data", Run: root + "/run", Config: root + "/etc", Kubelet: root + "/kubelet"},
			Network: config.Network{Domain: "cluster.local", ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
				ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}},
			API:  config.API{Bind: netip.IPv4Unspecified(), Advertise: address, Port: 6443, KubeconfigPath: root + "/etc/kubeconfig.yaml", KubeconfigMode: 0o600},
			Node: config.Node{Name: fmt.Sprintf("boat-%d", i+1), IPs: []netip.Addr{address}},
		}
		if i > 0 {
			keys, err := pki.ReadKeys(c.servers[0].Dirs)
			if err == nil {
				err = pki.WriteKeys(cfg.Dirs, keys)
			}
			c.must(err)
		}
		_, err := pki.EnsureServer(cfg)
		c.must(err)
		c.servers = append(c.servers, cfg)
	}
	c.etcd.Written = func(key string) {
		if strings.HasSuffix(key, "/authorities") {
			c.follow(c.servers[0])
		}
		c.readable(key)
	}
	_, err := c.secrets(c.servers[0]).Begin(t.Context())
	c.must(err)
	for _, cfg := range c.servers {
		c.follow(cfg)
	}
	c.etcd.Writes = 0
	return c
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) seals(cfg config.Config, purpose string) []encryption.Seal {
	c.Helper()
	seals, err := encryption.NewSeals(cfg.Dirs, purpose)
	c.must(err)
	return seals
}

// secrets is the record of the encryption keys as a server opens it.
func (c *cluster) secrets(cfg config.Config) encryption.Store {
	return encryption.Store{Client: c.client, Prefix: prefix, Seals: c.seals(cfg, pki.SealSecrets)}
}

// rotation is the record of the authorities as a server opens it.
func (c *cluster) rotation(cfg config.Config) (r pki.Rotation, err error) {
	_, err = Store(c.client, prefix, c.seals(cfg, pki.SealAuthorities)).Open(c.Context(), &r)
	return r, err
}

// follow has a server take the record over and report it, as package authorityfiles does.
func (c *cluster) follow(cfg config.Config) {
	c.Helper()
	kill := c.etcd.Kill // it is the command that is dead
	c.etcd.Kill = 0
	defer func() { c.etcd.Kill = kill }()
	r, err := c.rotation(cfg)
	c.must(err)
	if r.Stage != "" && !r.Matches(cfg.Dirs) {
		c.must(pki.Adopt(cfg, r.Files()))
	}
	if r.Stage != "" {
		c.ids[string(r.After["ca.crt"])] = true
	}
	c.etcd.Set(prefix+"/coracle.io/authorities-servers/"+cfg.Node.Name, fmt.Sprintf(`{"hash": %q}`, r.ID()))
}

// readable: after any write each server opens what is in the datastore, whether or not it has followed it already.
func (c *cluster) readable(key string) {
	c.Helper()
	kill := c.etcd.Kill
	c.etcd.Kill = 0
	defer func() { c.etcd.Kill = kill }()
	for _, cfg := range c.servers {
		if _, err := c.rotation(cfg); err != nil {
			c.Errorf("after %s was written as the %d. %s cannot open the record of the authorities: %v", key, c.etcd.Writes, cfg.Node.Name, err)
		}
		if keys, err := c.secrets(cfg).Load(c.Context()); err != nil || keys.Write != "key1" {
			c.Errorf("after %s was written as the %d. %s has the encryption key %q: %v", key, c.etcd.Writes, cfg.Node.Name, keys.Write, err)
		}
	}
}

// change is what a command begins with.
func (c *cluster) change() Change {
	first := c.servers[0]
	return Change{
		Change: encryption.Change{
			Store: Store(c.client, prefix, c.seals(first, pki.SealAuthorities)), Who: "the test", Tell: func(string) {}, Patience: time.Minute,
			Running: func(context.Context) ([]string, int, error) {
				c.follow(c.servers[1])
				return []string{"boat-1", "boat-2"}, 2, nil
			},
		},
		Secrets: c.secrets(first), Dirs: first.Dirs, All: func(context.Context) ([]string, error) { return nil, nil },
	}
}

// run runs a command, kills it after so many of its writes, and its repetition after two: that of the lock and another one. It reports whether it was killed.
func (c *cluster) run(after int, do func(Change) error) (killed bool) {
	c.Helper()
	for _, c.etcd.Kill = range []int{after, 2, 0} {
		c.etcd.Writes = 0
		err := do(c.change())
		delete(c.etcd.Data, prefix+"/coracle.io/authorities-lock") // it ends by itself
		if err == nil {
			break
		}
		if killed = true; !errors.Is(err, fakeetcd.ErrKilled) {
			c.Fatalf("killed after %d writes: %v", after, err)
		}
	}
	c.etcd.Kill = 0
	return killed
}

func (c *cluster) authority(cfg config.Config) string {
	c.Helper()
	data, err := os.ReadFile(filepath.Join(cfg.Dirs.PKI(), "ca.crt"))
	c.must(err)
	return string(data)
}

// TestKilled changes the authorities again and again, with commands that are killed after each of their writes, the lock's among them: no change is begun
// twice, both servers always open what is in the datastore, and in the end they have the same new authorities, and nothing is sealed with the former ones.
func TestKilled(t *testing.T) {
	c := newCluster(t)
	began := 0
	for after := 1; ; after++ {
		former := c.authority(c.servers[0])
		old := c.secrets(c.servers[0])
		killed := c.run(after, func(one Change) error { return one.Rotate(t.Context(), nil) })
		if r, err := c.rotation(c.servers[1]); err != nil || r.Stage != pki.Signing || !r.Matches(c.servers[0].Dirs) || !r.Matches(c.servers[1].Dirs) {
			t.Errorf("killed after %d writes: after rotate-ca the stage is %q, %v", after, r.Stage, err)
		}
		if _, err := old.Load(t.Context()); err != nil {
			t.Errorf("killed after %d writes: who has the former authority alone cannot open the encryption keys before --finish: %v", after, err)
		}
		killed = c.run(after, func(one Change) error { return one.Finish(t.Context(), true) }) || killed
		now := c.authority(c.servers[0])
		if r, err := c.rotation(c.servers[1]); err != nil || r.Stage != pki.Finished || now != c.authority(c.servers[1]) || strings.Contains(now, former) {
			t.Errorf("killed after %d writes: after --finish the stage is %q, %v, and the former authority is there: %t", after, r.Stage, err, strings.Contains(now, former))
		}
		if _, err := old.Load(t.Context()); err == nil {
			t.Errorf("killed after %d writes: the former authority opens the encryption keys", after)
		}
		if began++; len(c.ids) != began {
			t.Errorf("killed after %d writes: there were %d changes instead of %d", after, len(c.ids), began)
		}
		if !killed {
			t.Logf("no command makes %d writes", after)
			break
		}
	}
	if began < 4 {
		t.Errorf("only %d changes were interrupted", began)
	}
}
