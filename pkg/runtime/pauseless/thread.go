package pauseless

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/runtime/cgroups"
)

// Sandbox is a thread with the namespaces of a pod.
type Sandbox struct {
	TID     int
	hostPID bool
	cgroups string // path, as in the specification
	stop    chan struct{}
	stopped chan struct{}
}

// Start starts a thread with the namespaces, host name and sysctls of a sandbox for which Possible is true, and makes its cgroup, which stays empty:
// cadvisor finds a pod's network by it.
func Start(spec *specs.Spec) (*Sandbox, error) {
	s := &Sandbox{cgroups: spec.Linux.CgroupsPath, stop: make(chan struct{}), stopped: make(chan struct{})}
	s.hostPID = !slices.ContainsFunc(spec.Linux.Namespaces, func(ns specs.LinuxNamespace) bool { return ns.Type == specs.PIDNamespace })
	entered := make(chan error)
	onThread(func() {
		defer close(s.stopped)
		s.TID = unix.Gettid()
		err := enter(spec)
		entered <- err
		if err == nil {
			<-s.stop
		}
	})
	if err := <-entered; err != nil {
		return nil, fmt.Errorf("a thread for the pod's namespaces: %w", err)
	}
	if err := makeCgroup(s.cgroups); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Stop ends the thread and removes the cgroup. It is called once. The namespaces live on in the pod's containers.
func (s *Sandbox) Stop() {
	close(s.stop)
	<-s.stopped
	Clean(s.cgroups)
}

// onThread runs a function on a thread that ends with it. The main thread cannot end, so it is kept from the function while another one is found.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return // locked, so the thread ends
		}
		found := make(chan struct{})
		onThread(func() {
			close(found)
			f()
		})
		<-found
		runtime.UnlockOSThread()
	}()
}

// enter gives the calling thread the namespaces of a sandbox.
func enter(spec *specs.Spec) error {
	flags := 0
	for _, ns := range spec.Linux.Namespaces {
		switch ns.Type {
		case specs.IPCNamespace:
			flags |= unix.CLONE_NEWIPC
		case specs.UTSNamespace:
			flags |= unix.CLONE_NEWUTS
		case specs.NetworkNamespace:
			if err := join(ns.Path); err != nil {
				return err
			}
		}
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if flags&unix.CLONE_NEWUTS != 0 && spec.Hostname != "" {
		if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
			return fmt.Errorf("the pod's host name %q: %w", spec.Hostname, err)
		}
	}
	for name, value := range spec.Linux.Sysctl {
		// Of all of /proc/sys, only what is below net follows the network namespace of the thread that opens it.
		if err := os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0); err != nil {
			return fmt.Errorf("sysctl %s: %w", name, err)
		}
	}
	return nil
}

func join(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("joining the network namespace %s: %w", path, err)
	}
	return nil
}

// cgroupRoot is where the hierarchies of cgroups are mounted.
var cgroupRoot = cgroups.Root

// cgroupsOf returns the directories of a sandbox's cgroup in the hierarchies that have that of the pod.
func cgroupsOf(specified string, hierarchies ...string) (dirs []string) {
	path := cgroups.Path(specified)
	if path == "" {
		return nil
	}
	for _, hierarchy := range hierarchies {
		parents, _ := filepath.Glob(filepath.Join(cgroupRoot, hierarchy, filepath.Dir(path))) // its error is one of the pattern
		for _, parent := range parents {
			dirs = append(dirs, filepath.Join(parent, filepath.Base(path)))
		}
	}
	return dirs
}

// makeCgroup makes the cgroup of a sandbox: in v2's hierarchy, or in only one of v1's, because cadvisor reads all files of every cgroup that it finds.
func makeCgroup(specified string) error {
	dirs := cgroupsOf(specified, ".", "cpu", "cpu,*", "cpuacct*", "memory")
	if len(dirs) == 0 {
		return nil
	}
	if err := os.Mkdir(dirs[0], 0o755); err != nil && !os.IsExist(err) {
		return fmt.Errorf("a cgroup for the pod's sandbox: %w", err)
	}
	return nil
}

// Clean removes the cgroups of a sandbox with this path, also of one whose shim was killed. Older releases made one in each hierarchy.
func Clean(specified string) {
	for _, dir := range cgroupsOf(specified, ".", "*") {
		_ = unix.Rmdir(dir) // what is left is removed by the kubelet with the pod's cgroup
	}
}
