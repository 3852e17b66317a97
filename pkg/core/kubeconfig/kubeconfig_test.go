package kubeconfig

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coracle-dev/coracle/test/golden"
)

func encoded(t *testing.T, a Access) *File {
	t.Helper()
	data, err := Encode(a)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func ours(t *testing.T) *File {
	return encoded(t, Access{
		Name: DefaultName, Server: "https://127.0.0.1:6443",
		CA: Source{Data: []byte("ca")}, Cert: Source{Data: []byte("cert")}, Key: Source{Data: []byte("key")},
	})
}

func TestEncode(t *testing.T) {
	data, err := Encode(Access{
		Name: "coracle", User: "system:node:boat", Server: "https://[::1]:6443",
		CA: Source{File: "/pki/ca.crt"}, Cert: Source{File: "/pki/a.pem"}, Key: Source{File: "/pki/a.pem"},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/files.yaml", data)
	data, err = Encode(Access{Name: "coracle", Server: "https://127.0.0.1:6443",
		CA: Source{Data: []byte("ca")}, Cert: Source{Data: []byte("cert")}, Key: Source{Data: []byte("key")}})
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/data.yaml", data)
}

func TestMerge(t *testing.T) {
	for _, tc := range []struct {
		name string
		into string // a file of testdata, "" for none
		use  bool
		edit func(*File) error
	}{
		{name: "empty", use: true},
		{name: "nulls", into: "nulls.in.yaml", use: true},
		{name: "others", into: "others.in.yaml", use: true},
		{name: "others-keep-context", into: "others.in.yaml"},
		{name: "renamed", into: "others.in.yaml", use: true, edit: func(f *File) error {
			f.SetServer("https://edge.example.org:6443")
			return f.Rename("edge")
		}},
		{name: "again", into: "again.in.yaml", use: true},
		{name: "braces", into: "braces.in.yaml", use: true},
		{name: "json", into: "json.in.json", use: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "sub", "config")
			if tc.into != "" {
				data, err := os.ReadFile(filepath.Join("testdata", tc.into))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			from := ours(t)
			if tc.edit != nil {
				if err := tc.edit(from); err != nil {
					t.Fatal(err)
				}
			}
			merge := func(f *File) error {
				if lost := f.Conflict(from); lost != "" {
					t.Errorf("conflict: %s", lost)
				}
				f.Merge(from, tc.use)
				return nil
			}
			if err := Update(path, merge); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+tc.name+".out.yaml", got)
			if err := Update(path, merge); err != nil {
				t.Fatal(err)
			}
			if again, _ := os.ReadFile(path); string(again) != string(got) {
				t.Errorf("merging twice changed it:\n%s", again)
			}
			if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v", info.Mode())
			}
			if left, _ := filepath.Glob(filepath.Dir(path) + "/*.lock"); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

func TestConflict(t *testing.T) {
	other := encoded(t, Access{Name: DefaultName, Server: "https://192.0.2.9:6443", CA: Source{Data: []byte("other")}})
	if got := other.Conflict(ours(t)); !strings.Contains(got, "192.0.2.9") {
		t.Errorf("another cluster of the name: %q", got)
	}
	reset := encoded(t, Access{Name: DefaultName, Server: "https://127.0.0.1:6443", CA: Source{Data: []byte("old")}})
	if got := reset.Conflict(ours(t)); got != "" {
		t.Errorf("the same machine after a reset: %q", got)
	}
	moved := encoded(t, Access{Name: DefaultName, Server: "https://edge:6443", CA: Source{Data: []byte("ca")}})
	if got := moved.Conflict(ours(t)); got != "" {
		t.Errorf("the same cluster under another URL: %q", got)
	}
}

func TestUpdateErrors(t *testing.T) {
	for _, tc := range []struct{ name, content, want string }{
		{"not YAML", "a: [", "reading "},
		{"a list", "- a\n", "not a kubeconfig"},
		{"a manifest", "apiVersion: v1\nkind: Pod\n", "but a Pod"},
		{"clusters is a map", "clusters: {a: b}\n", "clusters is not a list (line 1)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Update(path, func(*File) error { return nil })
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if got, _ := os.ReadFile(path); string(got) != tc.content {
				t.Errorf("it was changed: %s", got)
			}
		})
	}
	t.Run("locked", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err := Update(path, func(*File) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "remove "+path+".lock") {
			t.Errorf("got %v", err)
		}
	})
}

func TestUpdateFollowsLinksAndKeepsOwner(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := os.WriteFile(real, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	uid := os.Geteuid()
	if uid == 0 {
		uid = 12345
		if err := os.Chown(real, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	if err := Update(link, func(f *File) error { f.Merge(ours(t), true); return nil }); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is gone: %v %v", info, err)
	}
	info, err := os.Stat(real)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t).Uid; int(got) != uid || info.Size() == 0 {
		t.Errorf("owner %d, size %d", got, info.Size())
	}
}

func TestUserFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ env, want string }{
		{"", dir + "/.kube/config"},
		{"/no/a", "/no/a"},
		{"/no/a:" + there + ":/no/b", there},
		{":/no/a:/no/b:", "/no/b"},
	} {
		t.Setenv("KUBECONFIG", tc.env)
		if got, err := UserFile(); err != nil || got != tc.want {
			t.Errorf("%q: got %q, %v, want %q", tc.env, got, err, tc.want)
		}
	}
}
