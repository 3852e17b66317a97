package pki

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/clock"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

func allNames(except ...string) []string {
	var names []string
	for _, l := range allLeaves() {
		if !slices.Contains(except, l.Name) {
			names = append(names, l.Name)
		}
	}
	return names
}

// sealWith signs the leaf on disk again after a change to its template, with its own key.
func sealWith(t *testing.T, cfg config.Config, name string, change func(*desired, *time.Duration)) {
	t.Helper()
	l := leafNamed(name)
	want, shift, now := l.desired(cfg), time.Duration(0), time.Now()
	change(&want, &shift)
	ca, err := ensureAuthority(cfg.Dirs, l.CA, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := readKey(l.keyFile(cfg.Dirs))
	if err != nil {
		t.Fatal(err)
	}
	template := leafTemplate(want, now)
	template.NotBefore, template.NotAfter = template.NotBefore.Add(shift), template.NotAfter.Add(shift)
	cert, err := sign(template, key, ca)
	if err != nil {
		t.Fatal(err)
	}
	if l.Rotated {
		err = storeRotated(cfg.Dirs, l, encodeCert(cert), key, now.Add(shift))
	} else {
		err = storePair(cfg.Dirs, l, key, append(encodeCert(cert), l.chain(cfg.Dirs)...))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestReissue(t *testing.T) {
	age := func(name string, days int) func(*testing.T, *config.Config) {
		return func(t *testing.T, cfg *config.Config) {
			sealWith(t, *cfg, name, func(_ *desired, shift *time.Duration) { *shift = -time.Duration(days) * 24 * time.Hour })
		}
	}
	remove := func(names ...string) func(*testing.T, *config.Config) {
		return func(t *testing.T, cfg *config.Config) {
			for _, name := range names {
				if err := os.Remove(filepath.Join(cfg.Dirs.Data, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*testing.T, *config.Config)
		want   []string
	}{
		{"nothing", func(*testing.T, *config.Config) {}, nil},
		{"another node IP", func(_ *testing.T, c *config.Config) { c.Node.IPs[0] = netip.MustParseAddr("192.0.2.11") }, []string{"apiserver", "etcd/peer", "kubelet-server"}},
		{"another name", func(_ *testing.T, c *config.Config) { c.Node.Name = "boat-2" }, []string{"apiserver", "etcd/peer", "kubelet-client", "kubelet-server", "node"}},
		{"one more --tls-san", func(_ *testing.T, c *config.Config) { c.API.SANs = append(c.API.SANs, "Edge.example.org") }, []string{"apiserver"}},
		{"one --tls-san less", func(_ *testing.T, c *config.Config) { c.API.SANs = c.API.SANs[:1] }, []string{"apiserver"}},
		{"another domain", func(_ *testing.T, c *config.Config) { c.Network.Domain = "boats" }, []string{"apiserver"}},
		{"two thirds of a life", age("scheduler", 250), []string{"scheduler"}},
		{"less than two thirds", age("scheduler", 240), nil},
		{"expired", age("admin", 400), []string{"admin"}},
		{"from the future", age("admin", -31), []string{"admin"}},
		{"the clock was set back by two days", age("admin", -2), nil},
		{"the kubelet renews this one", age("kubelet-client", 300), nil},
		{"the kubelet did not renew this one", age("kubelet-client", 360), []string{"kubelet-client"}},
		{"another group", func(t *testing.T, cfg *config.Config) {
			sealWith(t, *cfg, "coracle", func(w *desired, _ *time.Duration) { w.Group = groupMasters })
		}, []string{"coracle"}},
		{"another usage", func(t *testing.T, cfg *config.Config) {
			sealWith(t, *cfg, "coracle", func(w *desired, _ *time.Duration) { w.Usage = serverLeaves[0].Usage })
		}, []string{"coracle"}},
		{"the kubelet got more names", func(t *testing.T, cfg *config.Config) {
			sealWith(t, *cfg, "kubelet-server", func(w *desired, shift *time.Duration) {
				w.SANs.DNS = append(w.SANs.DNS, "boat-1.cloud")
				*shift = -time.Hour
			})
		}, nil},
		{"no key", remove("server/pki/apiserver.key"), []string{"apiserver"}},
		{"no certificate", remove("server/pki/front-proxy-client.crt"), []string{"front-proxy-client"}},
		{"no kubelet pair", remove("node/pki/kubelet-client-current.pem"), []string{"kubelet-client"}},
		{"no node", func(t *testing.T, cfg *config.Config) {
			if err := os.RemoveAll(filepath.Dir(cfg.Dirs.NodePKI())); err != nil {
				t.Fatal(err)
			}
		}, []string{"kubelet-client", "kubelet-server", "node"}},
		{"a reset", func(t *testing.T, cfg *config.Config) {
			if err := os.RemoveAll(cfg.Dirs.Data); err != nil {
				t.Fatal(err)
			}
		}, allNames()},
		{"another authority, from a backup", func(t *testing.T, cfg *config.Config) {
			if err := os.Remove(clusterCA.certFile(cfg.Dirs)); err != nil {
				t.Fatal(err)
			}
			if _, err := newAuthority(cfg.Dirs, clusterCA, nil, time.Now()); err != nil {
				t.Fatal(err)
			}
		}, allNames("front-proxy-client", "etcd/peer")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := testConfig(t)
			ensureAll(t, cfg)
			tc.change(t, &cfg)
			got, err := EnsureServer(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Issued, tc.want) {
				t.Errorf("issued %q, want %q", got.Issued, tc.want)
			}
			checkAll(t, cfg)
			if again, err := EnsureServer(cfg); err != nil || len(again.Issued) > 0 {
				t.Errorf("a second pass issued %q, %v", again.Issued, err)
			}
			kubeconfig, _ := os.ReadFile(cfg.API.KubeconfigPath)
			if len(kubeconfig) == 0 {
				t.Error("no kubeconfig for the user")
			}
		})
	}
}

// What a renewal leaves in place: the key, so that no reader ever finds a pair that does not match.
func TestRenewalKeepsTheKey(t *testing.T) {
	cfg := testConfig(t)
	ensureAll(t, cfg)
	before := snapshot(t, cfg)
	cfg.API.SANs = nil
	ensureAll(t, cfg)
	after := snapshot(t, cfg)
	for file := range after {
		changed := before[file] != after[file]
		if want := file == "server/pki/apiserver.crt"; changed != want {
			t.Errorf("%s changed: %v", file, changed)
		}
	}
}

// A board that boots in the year 2000 and learns the time later, and one that forgets it again.
func TestWithoutAClock(t *testing.T) {
	cfg := testConfig(t)
	synctest.Test(t, func(t *testing.T) {
		ensureAll(t, cfg)
		checkAll(t, cfg)
		time.Sleep(clock.Floor.Add(200 * 24 * time.Hour).Sub(time.Now()))
		checkAll(t, cfg)
		ensureAll(t, cfg)
		checkAll(t, cfg)
	})
	synctest.Test(t, func(t *testing.T) { // the year 2000 again
		for _, a := range authorities {
			if _, err := ensureAuthority(cfg.Dirs, a, time.Now()); err != nil {
				t.Error(err)
			}
		}
		ensureAll(t, cfg)
		checkAll(t, cfg)
	})
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(clock.Floor.Add(authorityLife + time.Hour).Sub(time.Now()))
		if _, err := EnsureServer(cfg); err == nil || !strings.Contains(err.Error(), "expired on 2036-10-") {
			t.Errorf("got %v", err)
		}
	})
}

func TestLocalAPI(t *testing.T) {
	for bind, want := range map[string]string{
		"0.0.0.0": "https://127.0.0.1:6443", "::": "https://[::1]:6443", "127.0.0.1": "https://127.0.0.1:6443",
		"::1": "https://[::1]:6443", "192.0.2.1": "https://192.0.2.1:6443",
	} {
		cfg := configIn("/test")
		cfg.API.Bind = netip.MustParseAddr(bind)
		if got := localAPI(cfg); got != want {
			t.Errorf("%s: got %s, want %s", bind, got, want)
		}
	}
}
