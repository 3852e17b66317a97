package pki

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Any file that can be made anew is, whether it is missing, empty or cut; what cannot is an error that names it.
func TestEveryFile(t *testing.T) {
	cfg := testConfig(t)
	ensureAll(t, cfg)
	roots := []string{"server/pki/ca.crt", "server/pki/ca.key", "server/pki/front-proxy-ca.crt", "server/pki/front-proxy-ca.key", "server/pki/etcd/ca.crt", "server/pki/etcd/ca.key"}
	for file := range snapshot(t, cfg) {
		path := filepath.Join(cfg.Dirs.Data, file)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for damage, broken := range map[string]*string{"missing": nil, "empty": ptr(""), "cut": ptr(string(content[:len(content)/2]))} {
			t.Run(file+" "+damage, func(t *testing.T) {
				if broken == nil {
					drop(t, cfg, file)
				} else if err := os.WriteFile(path, []byte(*broken), 0o600); err != nil {
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
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
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
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
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
		{"the certificate of the CA", func(t *testing.T, cfg config.Config) { drop(t, cfg, "server/pki/ca.crt") },
			[]string{"/server/pki/ca.crt is missing but ", "the node has a copy: cp "}},
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
