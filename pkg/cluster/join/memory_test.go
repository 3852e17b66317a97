package join

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// dual is a server in a fresh directory.
func dual(t *testing.T) config.Config {
	return config.Config{
		Role: config.Server,
		Dirs: paths.Dirs{Data: t.TempDir()},
		Network: config.Network{
			ClusterCIDRs: prefixes("10.42.0.0/16", "fd42::/56"),
			ServiceCIDRs: prefixes("10.43.0.0/16", "fd43::/112"),
			Domain:       "cluster.local",
			Backend:      config.VXLAN,
		},
	}
}

// runEtcd leaves what etcd leaves.
func runEtcd(t *testing.T, cfg config.Config) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(cfg.Dirs.Etcd(), "member"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func keep(t *testing.T, cfg config.Config) {
	t.Helper()
	if err := KeepSettings(cfg); err != nil {
		t.Fatal(err)
	}
}

func TestKeepSettings(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*config.Network)
		want   []string // in the refusal; none: it starts
	}{
		{name: "nothing", change: func(*config.Network) {}},
		{name: "a setting of nodes", change: func(n *config.Network) { n.Backend = config.HostGW }},
		{
			name:   "service CIDR",
			change: func(n *config.Network) { n.ServiceCIDRs = prefixes("10.99.0.0/16", "fd43::/112") },
			want:   []string{"--service-cidr is 10.99.0.0/16,fd43::/112,", "put 10.43.0.0/16,fd43::/112 back", "coracle reset"},
		},
		{
			name:   "the preferred family",
			change: func(n *config.Network) { n.ClusterCIDRs = prefixes("fd42::/56", "10.42.0.0/16") },
			want:   []string{"--cluster-cidr is fd42::/56,10.42.0.0/16,", "put 10.42.0.0/16,fd42::/56 back"},
		},
		{
			name:   "one family less",
			change: func(n *config.Network) { n.ClusterCIDRs = n.ClusterCIDRs[:1] },
			want:   []string{"--cluster-cidr is 10.42.0.0/16, but", "put 10.42.0.0/16,fd42::/56 back"},
		},
		{
			name: "two at once",
			change: func(n *config.Network) {
				n.Domain, n.ServiceCIDRs = "other.test", n.ServiceCIDRs[:1]
			},
			want: []string{"--cluster-domain is other.test", "put cluster.local back", "\n", "--service-cidr"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := dual(t)
			keep(t, cfg)
			runEtcd(t, cfg)
			changed := cfg
			c.change(&changed.Network)
			err := KeepSettings(changed)
			if (err != nil) != (c.want != nil) {
				t.Fatal(err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error()+"\n", w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			keep(t, cfg) // a refusal changes nothing
		})
	}
}

func TestNothingIsKeptBeforeEtcdRuns(t *testing.T) {
	cfg := dual(t)
	keep(t, cfg)
	cfg.Network.Domain = "other.test"
	keep(t, cfg)
	runEtcd(t, cfg)
	keep(t, cfg)
	cfg.Network.Domain = "cluster.local"
	if KeepSettings(cfg) == nil {
		t.Error("the later domain was not kept")
	}
}

func TestDataWithoutTheFile(t *testing.T) {
	cfg := dual(t)
	runEtcd(t, cfg)
	keep(t, cfg)
	cfg.Network.Domain = "other.test"
	if KeepSettings(cfg) == nil {
		t.Error("the first start's domain was not kept")
	}
}

// TestDefaultsAfterALoss: a server that forgot its cluster's settings says that it has not the hardened defaults any more.
func TestDefaultsAfterALoss(t *testing.T) {
	hook := logtest.NewGlobal()
	cfg := dual(t)
	keep(t, cfg) // a new one
	runEtcd(t, cfg)
	keep(t, cfg)
	cfg.Security.Hardened = true
	if err := os.Remove(cfg.Dirs.ServerCluster()); err != nil {
		t.Fatal(err)
	}
	keep(t, cfg)
	if n := len(hook.AllEntries()); n > 0 {
		t.Errorf("%d lines too many: %s", n, hook.LastEntry().Message)
	}
	cfg.Security.Hardened = false
	if err := os.Remove(cfg.Dirs.ServerCluster()); err != nil {
		t.Fatal(err)
	}
	keep(t, cfg)
	if last := hook.LastEntry(); last == nil || last.Level != logrus.WarnLevel || !strings.Contains(last.Message, "--hardened") {
		t.Errorf("it says %+v", last)
	}
}

func TestAFileThatKnowsFewerSettings(t *testing.T) {
	for _, text := range []string{"null", `{"cluster-domain": "cluster.local"}`} {
		cfg := dual(t)
		keep(t, cfg)
		runEtcd(t, cfg)
		if err := os.WriteFile(cfg.Dirs.ServerCluster(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		keep(t, cfg)
		cfg.Network.ServiceCIDRs = prefixes("10.99.0.0/16")
		if KeepSettings(cfg) == nil {
			t.Errorf("after %s the service CIDR was not kept", text)
		}
	}
}

func TestDamagedFile(t *testing.T) {
	cfg := dual(t)
	keep(t, cfg)
	runEtcd(t, cfg)
	if err := os.WriteFile(cfg.Dirs.ServerCluster(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{cfg.Dirs.ServerCluster(), "--hardened"} {
		if err := KeepSettings(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in %v", want, err)
		}
	}
}

func TestAgentsKeepNothing(t *testing.T) {
	cfg := dual(t)
	cfg.Role = config.Agent
	keep(t, cfg)
	if _, err := os.Stat(cfg.Dirs.ServerCluster()); err == nil {
		t.Error("an agent wrote the file")
	}
}
