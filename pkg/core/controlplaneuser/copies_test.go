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
