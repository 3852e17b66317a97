package controlplaneuser

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
)

// TestUsersFiles: no manifest or chart keeps the control plane from starting, and all that can be copied is copied.
func TestUsersFiles(t *testing.T) {
	cfg := server(t)
	manifests := cfg.Dirs.Manifests()
	put(t, filepath.Join(manifests, "one.yaml"), "one")
	if err := errors.Join(os.MkdirAll(cfg.Dirs.Charts(), 0o700), syscall.Mkfifo(filepath.Join(cfg.Dirs.Charts(), "pipe"), 0o600),
		syscall.Mkfifo(filepath.Join(manifests, "pipe.yaml"), 0o600)); err != nil {
		t.Fatal(err)
	}
	c := prepared(t, &cfg)
	view := View(cfg)
	blocked := filepath.Join(view.Dirs.ManifestsToRead(), "two.yaml", "in-the-way")
	if err := os.MkdirAll(blocked, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(manifests, "two.yaml"), "two")
	put(t, filepath.Join(manifests, "zero.yaml"), "zero")
	failed := 0
	c.front.Failed = func(error) { failed++ }
	if err := c.Prepare(); err != nil || failed != 1 {
		t.Errorf("%v, %d other failures", err, failed)
	}
	for _, name := range []string{"one", "zero"} {
		if got, err := readable(filepath.Join(view.Dirs.ManifestsToRead(), name+".yaml")); got != name {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	synctest.Test(t, func(t *testing.T) { // what failed is tried again without a change
		ctx, cancel := context.WithCancel(t.Context())
		tried := 0
		c.front.Failed = func(error) {
			if tried++; tried == 2 {
				cancel()
			}
		}
		c.Keep(ctx)
	})
}

// TestView: each name of a file in a flag becomes that of its copy.
func TestView(t *testing.T) {
	cfg := server(t)
	cfg.ControlPlane.User = ID
	one, old := filepath.Join(cfg.Dirs.Config, "sa.pem"), filepath.Join(cfg.Dirs.Config, "sa.pem.old")
	put(t, one, "")
	put(t, old, "")
	cfg.Args = map[string][]string{"kube-apiserver": {"--tls-sni-cert-key=" + one + "," + one + ":a.test,b.test", "--f=" + old + "," + one, "--v=2", "--x"}}
	to := cfg.Dirs
	to.Copies = to.CopiesFor()
	want := []string{"--tls-sni-cert-key=" + to.CopyOf(one) + "," + to.CopyOf(one) + ":a.test,b.test", "--f=" + to.CopyOf(old) + "," + to.CopyOf(one), "--v=2", "--x"}
	if got := View(cfg).Args["kube-apiserver"]; !slices.Equal(got, want) {
		t.Errorf("%q instead of %q", got, want)
	}
}

// TestHalfCopied: while the files of another directory take the place of the former ones, nobody can take the copy for either.
func TestHalfCopied(t *testing.T) {
	cfg := server(t)
	dir := filepath.Join(cfg.Dirs.Data, "tree")
	put(t, filepath.Join(dir, "one.yaml"), "one")
	c := prepared(t, &cfg)
	s := source{from: dir, to: filepath.Join(cfg.Dirs.CopiesFor(), "tree"), wants: suffix(".yaml")}
	id := func() string {
		data, err := os.ReadFile(s.to + idSuffix)
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	var meanwhile []string
	s.open = func(dir, name string) (*os.File, error) {
		meanwhile = append(meanwhile, id())
		return follow(dir, name)
	}
	if err := c.syncTree(s); err != nil {
		t.Fatal(err)
	}
	before := id()
	if err := os.Rename(dir, dir+".before"); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "two.yaml"), "two")
	if err := c.syncTree(s); err != nil {
		t.Fatal(err)
	}
	if after := id(); before == "" || after == "" || before == after || !slices.Equal(meanwhile, []string{"", ""}) {
		t.Errorf("it is %q, then %q, and meanwhile %q", before, after, meanwhile)
	}
	put(t, filepath.Join(dir, "three.yaml"), "three")
	meanwhile = nil
	if err := c.syncTree(s); err != nil || !slices.Equal(meanwhile, []string{id()}) {
		t.Errorf("with a new file it is %q, %v", meanwhile, err)
	}
}

// TestFailedCopy: a tree of which a file cannot be read has no ID, and the file's copy of a former name stays.
func TestFailedCopy(t *testing.T) {
	cfg := server(t)
	dir := filepath.Join(cfg.Dirs.Data, "tree")
	put(t, filepath.Join(dir, "one.yaml"), "one")
	c := prepared(t, &cfg)
	s := source{from: dir, to: filepath.Join(cfg.Dirs.CopiesFor(), "tree"), wants: suffix(".yaml"), open: follow}
	if err := c.syncTree(s); err != nil {
		t.Fatal(err)
	}
	before, failing := dirID(s.from), true
	s.open = func(dir, name string) (*os.File, error) {
		if failing && name == "two.yaml" {
			return os.Open("/proc/self/mem") // reading it fails
		}
		return follow(dir, name)
	}
	if err := errors.Join(os.Rename(filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")), os.Remove(s.to+idSuffix)); err != nil {
		t.Fatal(err)
	}
	for _, failing = range []bool{true, false} {
		err := c.syncTree(s)
		id, errID := os.ReadFile(s.to + idSuffix)
		_, one := os.Stat(filepath.Join(s.to, "one.yaml"))
		if (err == nil) == failing || errID != nil || (string(id) == before) == failing || (one == nil) != failing {
			t.Errorf("failing %t: %v, the ID is %q, %v, and the former copy %v", failing, err, id, errID, one)
		}
	}
}

// TestLinksOutOfTheCharts lead nowhere in the copy: who may write charts could read any file of root's otherwise.
func TestLinksOutOfTheCharts(t *testing.T) {
	cfg := server(t)
	charts := cfg.Dirs.Charts()
	put(t, filepath.Join(charts, "one.tgz"), "one")
	put(t, filepath.Join(cfg.Dirs.Config, "secret"), "secret")
	for name, target := range map[string]string{"inside.tgz": "one.tgz", "out.tgz": filepath.Join(cfg.Dirs.Config, "secret")} {
		if err := os.Symlink(target, filepath.Join(charts, name)); err != nil {
			t.Fatal(err)
		}
	}
	prepared(t, &cfg)
	for name, want := range map[string]string{"one.tgz": "one", "inside.tgz": "one", "out.tgz": ""} {
		if got, err := readable(filepath.Join(View(cfg).Dirs.ChartsToRead(), name)); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
