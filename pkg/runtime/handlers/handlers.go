// Package handlers finds container runtimes that are installed on the machine. Names and programs are those that k3s looks for, and gVisor's and Kata's.
package handlers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Runc is the type of containerd's runtimes whose shim runs a program with runc's command line.
const Runc = "io.containerd.runc.v2"

// Handler is a runtime that containerd can use.
type Handler struct {
	Name    string // of containerd's handler, and of the RuntimeClass
	Type    string // of containerd's runtime
	Program string // what the shim runs if Type is Runc, otherwise the shim; a path once it is found
}

// Known returns the table of all runtimes that are looked for.
func Known() []Handler {
	all := []Handler{
		{"crun", Runc, "crun"},
		{"kata", "io.containerd.kata.v2", "containerd-shim-kata-v2"},
		{"nvidia", Runc, "nvidia-container-runtime"},
		{"nvidia-cdi", Runc, "nvidia-container-runtime.cdi"},
		{"nvidia-experimental", Runc, "nvidia-container-runtime-experimental"},
		{"runsc", "io.containerd.runsc.v1", "containerd-shim-runsc-v1"},
		{"spin", "io.containerd.spin.v2", "containerd-shim-spin-v2"},
	}
	for _, name := range []string{"lunatic", "slight", "wasmedge", "wasmer", "wasmtime", "wws"} {
		all = append(all, Handler{name, "io.containerd." + name + ".v1", "containerd-shim-" + name + "-v1"})
	}
	return all
}

// IsKnown reports whether the table has a handler.
func IsKnown(name string) bool {
	return slices.ContainsFunc(Known(), func(h Handler) bool { return h.Name == name })
}

// dirs are searched in this order. What operators of Kubernetes install precedes what packages and people do.
func dirs() []string {
	return []string{"/usr/local/nvidia/toolkit", "/opt/kwasm/bin", "/opt/kata/bin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}
}

// Find returns the runtimes whose programs are below root, which is "/" except in tests. Programs that others than root can
// replace are left out; wrong says which.
func Find(root string) (found []Handler, wrong error) {
	for _, h := range Known() {
		for _, dir := range dirs() {
			path := filepath.Join(dir, h.Program)
			err := check(root, path)
			if err == nil {
				h.Program = path
				found = append(found, h)
				break
			}
			if !errors.Is(err, fs.ErrNotExist) {
				wrong = errors.Join(wrong, fmt.Errorf("the runtime %s is not used: %w", h.Name, err))
			}
		}
	}
	return found, wrong
}

// hops is how many symbolic links a path may contain, as in the kernel.
const hops = 40

// check follows path below root, and refuses every component that others than root could change.
func check(root, path string) error {
	rest, at, links := strings.Split(path, "/"), "/", 0
	for {
		info, err := os.Lstat(filepath.Join(root, at))
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			if links++; links > hops {
				return fmt.Errorf("%s is a loop of symbolic links", path)
			}
			target, err := os.Readlink(filepath.Join(root, at))
			if err != nil {
				return err
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(at), target)
			}
			rest, at = append(strings.Split(target, "/"), rest...), "/"
			continue
		}
		if err := onlyRoots(at, info); err != nil {
			return err
		}
		for len(rest) > 0 && rest[0] == "" {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			if !info.Mode().IsRegular() || info.Mode()&0o100 == 0 {
				return fmt.Errorf("%s is not a program: remove it, or make it executable", at)
			}
			return nil
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:]
	}
}

// onlyRoots refuses a file or directory that has another owner or that others may write.
func onlyRoots(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("the owner of %s is unknown", path)
	}
	mode := info.Mode()
	if owner := int(stat.Uid); owner != 0 && owner != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d: chown it to root", path, owner)
	}
	if mode&0o002 != 0 || mode&0o020 != 0 && stat.Gid != 0 {
		return fmt.Errorf("%s can be written by others than root: chmod go-w %s", path, path)
	}
	return nil
}
