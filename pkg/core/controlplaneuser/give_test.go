package controlplaneuser

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// TestToRoot: a control plane that is root again, of this version or of one that knows no user for it, finds the user's data, and nothing
// through which root would write elsewhere or others would write root's files.
func TestToRoot(t *testing.T) {
	for name, again := range map[string]func(*Copies) error{
		"older version": func(c *Copies) error { return ToRoot(c.cfg.Dirs) },
		"as root": func(c *Copies) error {
			c.cfg.ControlPlane = config.ControlPlane{AsRoot: "a test"}
			return c.Prepare()
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := server(t)
			c := prepared(t, &cfg)
			d := cfg.Dirs
			secret, moved := filepath.Join(d.Config, "secret"), filepath.Join(d.Config, "moved")
			put(t, secret, "root's")
			in := func(name string) string { return filepath.Join(d.Etcd(), name) }
			ofRoot := in("of-root")
			if err := errors.Join(os.Symlink(moved, ofRoot), os.WriteFile(moved, nil, 0o600), os.Link(secret, in("name-of-root"))); err != nil {
				t.Fatal(err)
			}
			data, open, hidden := in("member/snap/db"), in("open"), in("a\xff/hidden")
			planted := []string{d.ControlPlane("own-nodes.json"), in("link"), in("member/link"), d.State("planted"), in("one"), in("two"),
				in("socket"), in("pipe"), hidden}
			if err := as(ID, func() error {
				l, err := net.Listen("unix", in("socket"))
				if err == nil {
					l.(*net.UnixListener).SetUnlinkOnClose(false)
					err = l.Close()
				}
				return errors.Join(err, os.MkdirAll(filepath.Dir(data), 0o777), os.Mkdir(filepath.Dir(hidden), 0o700),
					os.WriteFile(data, []byte("data"), 0o600), os.WriteFile(open, nil, 0o600), os.Chmod(open, 0o666), os.Chmod(d.Etcd(), 0o777),
					os.Symlink(secret, planted[0]), os.Symlink(secret, planted[1]), os.Symlink(d.Config, planted[2]), os.Symlink(secret, planted[3]),
					os.WriteFile(in("one"), nil, 0o666), os.Link(in("one"), in("two")), unix.Mkfifo(in("pipe"), 0o666), os.Symlink(secret, hidden))
			}); err != nil {
				t.Fatal(err)
			}
			if err := again(c); err != nil {
				t.Fatal(err)
			}
			for _, path := range planted {
				if _, err := os.Lstat(path); path == in("two") && err == nil {
					continue // the last name of a file
				} else if !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%q is still there: %v", path, err)
				}
			}
			for _, path := range []string{d.Etcd(), data, open, filepath.Dir(data), ofRoot, filepath.Dir(d.ControlPlane("x"))} {
				info, err := os.Lstat(path)
				if err != nil || owner(t, path) != 0 || info.Mode().Type() != os.ModeSymlink && info.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s: %v %v", path, info.Mode(), err)
				}
			}
			for path, want := range map[string]string{data: "data", secret: "root's", in("name-of-root"): "root's"} {
				if got, _ := os.ReadFile(path); string(got) != want {
					t.Errorf("%s has %q", path, got)
				}
			}
			if paths.Exists(d.CopiesFor()) {
				t.Error("copies of root's files are left")
			}
		})
	}
}

// TestUnreadableName: a name that is no text does not keep the control plane from starting.
func TestUnreadableName(t *testing.T) {
	cfg := server(t)
	prepared(t, &cfg)
	put(t, filepath.Join(cfg.Dirs.Etcd(), "a\xff", "file"), "")
	prepared(t, &cfg)
}
