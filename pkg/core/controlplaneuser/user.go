package controlplaneuser

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/confine"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Choose returns the user that the control plane of a server runs as: its own, or root if that cannot work on this machine or with
// this configuration.
func Choose(cfg config.Config) config.ControlPlane {
	for _, obstacle := range []func(config.Config) error{lacking, lowPort, ownFiles, references, unreachable} {
		if err := obstacle(cfg); err != nil {
			return config.ControlPlane{AsRoot: err.Error()}
		}
	}
	return config.ControlPlane{User: ID}
}

// lacking returns an error if this process may not start one of another user and stop it.
func lacking(config.Config) error {
	for name, capability := range confine.Needed() {
		if !confine.Has(capability) {
			return fmt.Errorf("coracle lacks %s", name)
		}
	}
	return nil
}

// lowPort returns an error if only root may listen on the API's port.
func lowPort(cfg config.Config) error {
	data, _ := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	first, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		first = 1024
	}
	if int(cfg.API.Port) < first {
		return fmt.Errorf("only root may listen on port %d", cfg.API.Port)
	}
	return nil
}

// ownFiles returns an error if a pass-through flag names a file that upstream writes and root owns.
func ownFiles(cfg config.Config) error {
	for _, component := range components {
		for _, arg := range cfg.Args[component] {
			name, value, _ := strings.Cut(arg, "=")
			if written(name) && filepath.IsAbs(value) && !strings.HasPrefix(value, cfg.Dirs.Etcd()+"/") {
				return fmt.Errorf("--%s-arg %s names what only root may write", component, arg)
			}
		}
	}
	return nil
}

// references returns an error if the control plane has to open what only root can, and of which there is no copy: the socket of the
// datastore, or what a configuration file names, such as the key in a webhook's kubeconfig or the socket of a KMS plugin.
func references(cfg config.Config) error {
	for _, endpoint := range cfg.Datastore.Endpoints {
		if err := closed("--datastore-endpoint", endpoint); err != nil {
			return err
		}
	}
	for _, s := range sources(cfg) {
		if !strings.Contains(s.to, "/files/") || s.wants != nil {
			continue
		}
		data, _ := os.ReadFile(s.from) // its reader reports the error
		for _, word := range strings.FieldsFunc(string(data), func(r rune) bool { return strings.ContainsRune(" \t\r\n\"',[]{}", r) }) {
			if err := closed(s.from, word); err != nil {
				return err
			}
		}
	}
	return nil
}

// closed returns an error if a word in the file from names a file or a socket that the user may not open.
func closed(from, word string) error {
	path, url := strings.CutPrefix(word, "unix://")
	if !filepath.IsAbs(path) {
		if info, err := os.Stat(filepath.Join(filepath.Dir(from), word)); err == nil && info.Mode().IsRegular() {
			return fmt.Errorf("%s names %s without its directory", from, word)
		}
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil && url:
		return fmt.Errorf("%s names the socket %s, which is not there yet", from, path)
	case err != nil || info.IsDir():
		return nil
	}
	right := uint32(unix.R_OK)
	if info.Mode().Type() == fs.ModeSocket {
		right = unix.W_OK
	}
	if as(ID, func() error { return unix.Faccessat(unix.AT_FDCWD, path, right, unix.AT_EACCESS) }) != nil {
		return fmt.Errorf("%s names %s, which only root can open", from, path)
	}
	return nil
}

// unreachable returns an error if the user may not get to its directories.
func unreachable(cfg config.Config) error {
	if err := giveDirs(cfg, ID); err != nil {
		return err
	}
	return as(ID, func() error {
		for _, dir := range ownDirs(cfg) {
			d, err := os.Open(dir)
			if err != nil {
				return fmt.Errorf("user %d cannot reach %s: %w", ID, dir, err)
			}
			d.Close()
		}
		return nil
	})
}

// as calls do with the rights of another user to files. It ends the thread that it uses.
func as(id int, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Setfsgid(id)
		if err == nil {
			err = unix.Setfsuid(id)
		}
		if err == nil {
			err = do()
		}
		result <- err
	}()
	return <-result
}

// ownDirs are the directories that belong to the control plane's user, with all that is in them.
func ownDirs(cfg config.Config) []string {
	d := cfg.Dirs
	dirs := []string{filepath.Dir(d.ControlPlane("x")), filepath.Dir(d.ControlPlaneRun("x"))}
	if !cfg.Datastore.External() {
		dirs = append(dirs, d.Etcd())
	}
	if cfg.API.Audit || paths.Exists(filepath.Dir(d.AuditLog())) {
		dirs = append(dirs, filepath.Dir(d.AuditLog()))
	}
	return dirs
}

// giveDirs makes the user's directories, gives them with all that is in them to the user, and lets the user get there.
func giveDirs(cfg config.Config, id int) error {
	for _, dir := range ownDirs(cfg) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := give(dir, id); err != nil {
			return fmt.Errorf("giving %s to user %d: %w", dir, id, err)
		}
	}
	for _, dir := range []string{filepath.Dir(cfg.Dirs.Etcd()), filepath.Dir(cfg.Dirs.AuditLogLink())} {
		if err := os.Chmod(dir, 0o711); err != nil && !errors.Is(err, fs.ErrNotExist) { // names in it remain root's to list
			return err
		}
	}
	state := filepath.Dir(cfg.Dirs.State("x"))
	if err := os.MkdirAll(state, 0o755); err != nil {
		return err
	}
	// Everybody replaces only files of their own in it.
	return errors.Join(os.Chown(state, 0, id), unix.Chmod(state, 0o1775))
}
