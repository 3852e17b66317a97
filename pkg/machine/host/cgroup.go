package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// DelegateCgroups enables all controllers for the children of the cgroup root, so that pods, or the nodes of a local
// cluster, can have cgroups. It has an effect only in a container with a cgroup v2 namespace: there the root is an
// ordinary cgroup, and the kernel enables controllers for children only while the cgroup itself holds no processes. They
// move to the child "init".
func DelegateCgroups(root string) error {
	if !cgroupV2(root) || !paths.Exists(filepath.Join(root, "cgroup.type")) { // the machine's real root has no type
		return nil
	}
	return delegate(root)
}

// delegate is DelegateCgroups for the root of a cgroup namespace.
func delegate(root string) error {
	controllers := read(filepath.Join(root, "cgroup.controllers"))
	control := filepath.Join(root, "cgroup.subtree_control")
	if read(filepath.Join(root, "cgroup.procs")) == "" && read(control) == controllers {
		return nil // the container's init system or an earlier call has done it
	}
	const hint = "give the container a writable /sys/fs/cgroup (docker run --privileged)"
	child := filepath.Join(root, "init")
	if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making a cgroup for what runs in this container: %w; %s", err, hint)
	}
	if err := moveProcesses(root, child); err != nil {
		return fmt.Errorf("moving processes out of the container's root cgroup: %w; %s", err, hint)
	}
	var all []string
	for _, c := range strings.Fields(controllers) {
		all = append(all, "+"+c)
	}
	if err := os.WriteFile(control, []byte(strings.Join(all, " ")), 0o644); err != nil {
		return fmt.Errorf("handing cgroup controllers to pods: %w; %s", err, hint)
	}
	return nil
}

// moveProcesses moves every process from one cgroup to another. It repeats this until the first cgroup is empty, because
// processes fork meanwhile.
func moveProcesses(from, to string) error {
	target := filepath.Join(to, "cgroup.procs")
	for range 100 {
		pids := strings.Fields(read(filepath.Join(from, "cgroup.procs")))
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			err := os.WriteFile(target, []byte(pid), 0o644)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return errors.New("new processes keep appearing there")
}
