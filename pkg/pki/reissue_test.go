package pki

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/pkg/atomicfile"
	"github.com/coracle-dev/coracle/pkg/config"
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
func sealWith(t *testing.T, cfg config.Config, name string, change func(*wanted, *time.Duration)) {
	t.Helper()
	l, _ := leafNamed(name)
	want, shift, now := l.wanted(cfg), time.Duration(0), time.Now()
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
		err = storeRotated(cfg.Dirs, l, cert, key, now.Add(shift))
	} else {
		err = storePair(cfg.Dirs, l, cert, key)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestReissue(t *testing.T) {
	age := func(name string, days int) func(*testing.T, *config.Config) {
		return func(t *testing.T, cfg *config.Config) {
			sealWith(t, *cfg, name, func(_ *wanted, shift *time.Duration) { *shift = -time.Duration(days) * 24 * time.Hour })
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
		{"another node IP", func(_ *testing.T, c *config.Config) { c.Node.IPs[0] = netip.MustParseAddr("192.0.2.11") }, []string{"apiserver", "kubelet-server"}},
		{"another name", func(_ *testing.T, c *config.Config) { c.Node.Name = "boat-2" }, []string{"apiserver", "kubelet-client", "kubelet-server", "node"}},
		{"one more --tls-san", func(_ *testing.T, c *config.Config) { c.API.SANs = append(c.API.SANs, "Edge.example.org") }, []string{"apiserver"}},
		{"one --tls-san less", func(_ *testing.T, c *config.Config) { c.API.SANs = c.API.SANs[:1] }, []string{"apiserver"}},
		{"another domain", func(_ *testing.T, c *config.Config) { c.Network.Domain = "boats" }, []string{"apiserver"}},
		{"two thirds of a life", age("scheduler", 250), []string{"scheduler"}},
		{"less than two thirds", age("scheduler", 240), nil},
		{"expired", age("admin", 400), []string{"admin"}},
		{"from the future", age("admin", -2), []string{"admin"}},
		{"the kubelet renews this one", age("kubelet-client", 300), nil},
		{"the kubelet did not renew this one", age("kubelet-client", 360), []string{"kubelet-client"}},
		{"another group", func(t *testing.T, cfg *config.Config) {
			sealWith(t, *cfg, "coracle", func(w *wanted, _ *time.Duration) { w.Group = groupMasters })
		}, []string{"coracle"}},
		{"another usage", func(t *testing.T, cfg *config.Config) {
			sealWith(t, *cfg, "coracle", func(w *wanted, _ *time.Duration) { w.Usage = serverLeaves[0].Usage })
		}, []string{"coracle"}},
		{"the kubelet got more names", func(t *testing.T, cfg *config.Config) {
			sealWith(t, *cfg, "kubelet-server", func(w *wanted, shift *time.Duration) {
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
		}, []string{"kubelet-client", "kubelet-server", "kube-proxy", "node"}},
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
		}, allNames("front-proxy-client")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := testConfig(t)
			ensureAll(t, cfg)
			tc.change(t, &cfg)
			got, err := Renew(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Issued, tc.want) {
				t.Errorf("issued %q, want %q", got.Issued, tc.want)
			}
			checkAll(t, cfg)
			if again, err := Renew(cfg); err != nil || len(again.Issued) > 0 {
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

// Any file that can be made anew is, whether it is missing, empty or cut; what cannot is an error that names it.
func TestEveryFile(t *testing.T) {
	cfg := testConfig(t)
	ensureAll(t, cfg)
	roots := []string{"server/pki/ca.crt", "server/pki/ca.key", "server/pki/front-proxy-ca.crt", "server/pki/front-proxy-ca.key"}
	for file, content := range snapshot(t, cfg) {
		for damage, broken := range map[string]*string{"missing": nil, "empty": ptr(""), "cut": ptr(content[:len(content)/2]), "rubbish": ptr("\x00\x01")} {
			t.Run(file+" "+damage, func(t *testing.T) {
				cfg := testConfig(t)
				ensureAll(t, cfg)
				path := filepath.Join(cfg.Dirs.Data, strings.ReplaceAll(file, "TIME", ""))
				if strings.Contains(file, "/kubelet-") && strings.HasSuffix(file, ".pem") {
					path, _ = filepath.EvalSymlinks(filepath.Join(cfg.Dirs.NodePKI(), filepath.Base(file)[:len("kubelet-client")]+"-current.pem"))
				}
				mode := fs.FileMode(0o600)
				if broken == nil {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				} else if err := os.WriteFile(path, []byte(*broken), mode); err != nil {
					t.Fatal(err)
				}
				err := ensure(cfg)
				lost := slices.Contains(roots, file) || file == "server/pki/sa.key" && damage != "missing"
				if !lost {
					if err != nil {
						t.Fatal(err)
					}
					checkAll(t, cfg)
					return
				}
				if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "backup") {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

func ptr(s string) *string { return &s }

// A start that was interrupted after any of its files, in the order in which they appear, can be repeated.
func TestCrashAfterEachFile(t *testing.T) {
	whole := testConfig(t)
	ensureAll(t, whole)
	var files []string
	times := map[string]time.Time{}
	err := filepath.WalkDir(whole.Dirs.Data, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		rel, _ := filepath.Rel(whole.Dirs.Data, path)
		files, times[rel] = append(files, rel), info.ModTime()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(files, func(a, b string) int { return cmp.Or(times[a].Compare(times[b]), strings.Compare(b, a)) })
	for n := range files {
		t.Run(fmt.Sprintf("%d %s", n, files[n]), func(t *testing.T) {
			cfg := testConfig(t)
			for _, file := range files[:n] {
				copyFile(t, filepath.Join(whole.Dirs.Data, file), filepath.Join(cfg.Dirs.Data, file))
			}
			half := filepath.Join(cfg.Dirs.Data, filepath.Dir(files[n]), ".half-written.123")
			if err := atomicfile.Write(half, []byte("-----BEGIN"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, cfg)
			ensureAll(t, cfg)
			checkAll(t, cfg)
			for file, content := range snapshot(t, cfg) {
				if was, ok := before[file]; ok && was != content && strings.HasSuffix(file, ".key") {
					t.Errorf("%s was made anew", file)
				}
			}
		})
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from) // links become files, as in a careless restore
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(to, data, info.Mode().Perm()); err != nil {
		t.Fatal(err)
	}
}

func TestErrorsNameTheFix(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, cfg config.Config)
		want   []string
	}{
		{"a key that others can read", func(t *testing.T, cfg config.Config) { chmod(t, cfg, "server/pki/apiserver.key", 0o644) },
			[]string{"/server/pki/apiserver.key is open to other users (mode 0644)", "chmod 600 "}},
		{"the CA's key", func(t *testing.T, cfg config.Config) { chmod(t, cfg, "server/pki/ca.key", 0o640) },
			[]string{"/server/pki/ca.key is open to other users", "chmod 600 "}},
		{"the service accounts' key", func(t *testing.T, cfg config.Config) { chmod(t, cfg, "server/pki/sa.key", 0o604) },
			[]string{"/server/pki/sa.key is open to other users", "chmod 600 "}},
		{"a directory that others can write", func(t *testing.T, cfg config.Config) { chmod(t, cfg, "node/pki", 0o777) },
			[]string{"/node/pki, which holds private keys", "chmod 700 "}},
		{"the pair of the CA", func(t *testing.T, cfg config.Config) { drop(t, cfg, "server/pki/ca.crt", "server/pki/ca.key") },
			[]string{"the pair ", "/server/pki/ca.crt and ca.key is missing but ", "backup", "coracle reset", "a copy of the certificate, without the key"}},
		{"the CA, and leaves, but etcd is there", func(t *testing.T, cfg config.Config) {
			drop(t, cfg, "server/pki", "node")
			mkdir(t, filepath.Join(cfg.Dirs.Etcd(), "member"))
		}, []string{"/server/etcd/member was made with it", "/server/etcd/member, is missing"}},
		{"another's key", func(t *testing.T, cfg config.Config) {
			copyFile(t, frontProxyCA.keyFile(cfg.Dirs), clusterCA.keyFile(cfg.Dirs))
		}, []string{"ca.key is not the key of "}},
		{"a leaf as the CA", func(t *testing.T, cfg config.Config) {
			copyFile(t, filepath.Join(cfg.Dirs.PKI(), "admin.crt"), clusterCA.certFile(cfg.Dirs))
		}, []string{"ca.crt is not the certificate of an authority"}},
		{"the service accounts' key of a cluster that ran", func(t *testing.T, cfg config.Config) {
			drop(t, cfg, "server/pki/sa.key")
			mkdir(t, filepath.Join(cfg.Dirs.Etcd(), "member"))
		}, []string{"/sa.key, which signed the tokens of service accounts"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := testConfig(t)
			ensureAll(t, cfg)
			tc.change(t, cfg)
			before := snapshot(t, cfg)
			err := ensure(cfg)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
			for file, content := range snapshot(t, cfg) {
				if before[file] != content && strings.HasSuffix(file, "ca.key") {
					t.Errorf("%s was written", file)
				}
			}
		})
	}
}

func chmod(t *testing.T, cfg config.Config, file string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(filepath.Join(cfg.Dirs.Data, file), mode); err != nil {
		t.Fatal(err)
	}
}

func drop(t *testing.T, cfg config.Config, files ...string) {
	t.Helper()
	for _, file := range files {
		if err := os.RemoveAll(filepath.Join(cfg.Dirs.Data, file)); err != nil {
			t.Fatal(err)
		}
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// A board that boots in the year 2000 and learns the time later, and one that forgets it again.
func TestWithoutAClock(t *testing.T) {
	cfg := testConfig(t)
	synctest.Test(t, func(t *testing.T) {
		ensureAll(t, cfg)
		checkAll(t, cfg)
		time.Sleep(clockFloor.Add(200 * 24 * time.Hour).Sub(time.Now()))
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
		time.Sleep(clockFloor.Add(authorityLife + time.Hour).Sub(time.Now()))
		if err := EnsureServer(cfg); err == nil || !strings.Contains(err.Error(), "expired on 2036-10-") {
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
