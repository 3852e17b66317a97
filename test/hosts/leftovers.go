package hosts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// removeLeftovers removes cgroup v1 hierarchies that no process has mounted any more but that still contain empty
// cgroups, of an earlier test or a container engine. The kernel keeps such a hierarchy and lists it in every process's
// /proc/PID/cgroup. containerd then finds none of a container's cgroups and reports that the container uses nothing.
func removeLeftovers() error {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return fmt.Errorf("reading which cgroup hierarchies there are: %w", err)
	}
	for line := range strings.Lines(string(data)) { // ID:CONTROLLERS:PATH
		field := strings.SplitN(line, ":", 3)
		if len(field) != 3 || field[1] == "" || strings.Contains(field[1], "=") || mounted(field[1]) {
			continue
		}
		if err := removeHierarchy(field[1]); err != nil {
			return fmt.Errorf("removing what is left of cgroup hierarchy %s: %w", field[1], err)
		}
	}
	return nil
}

// mounted reports whether a v1 hierarchy with these controllers is mounted in any process's mount namespace.
func mounted(controllers string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	return slices.ContainsFunc(files, func(file string) bool {
		data, _ := os.ReadFile(file) // of a process that ends: none
		for line := range strings.Lines(string(data)) {
			if strings.HasSuffix(strings.TrimSpace(line), ","+controllers) {
				return true
			}
		}
		return false
	})
}

func removeHierarchy(controllers string) (err error) {
	dir, err := os.MkdirTemp("", "hierarchy")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := unix.Mount("none", dir, "cgroup", 0, controllers); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, 0)) }()
	var empty []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != dir {
			empty = append(empty, path)
		}
		return err
	})
	for _, path := range slices.Backward(empty) {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
