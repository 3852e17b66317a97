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
)

// Sandbox is a thread with the namespaces of a pod.
type Sandbox struct {
	TID     int
	hostPID bool
	cgroups []string
	stop    chan struct{}
	stopped chan struct{}
}

// Start starts a thread with the namespaces, host name and sysctls of a sandbox for which Possible is true, and makes its cgroups, which stay empty:
// cadvisor finds a pod's network by the cgroup of its sandbox.
func Start(spec *specs.Spec) (*Sandbox, error) {
	s := &Sandbox{stop: make(chan struct{}), stopped: make(chan struct{})}
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
	var err error
	if s.cgroups, err = makeCgroups(spec.Linux.CgroupsPath); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Stop ends the thread and removes the cgroups. It is called once. The namespaces live on in the pod's containers.
func (s *Sandbox) Stop() {
	close(s.stop)
	<-s.stopped
	for _, dir := range s.cgroups {
		_ = unix.Rmdir(dir) // the kubelet removes the pod's cgroup with all that is in it
	}
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
	if flags&unix.CLONE_NEWUTS != 0 {
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

// cgroupRoot is where the hierarchy of cgroup v2, or those of v1, are mounted.
var cgroupRoot = "/sys/fs/cgroup"

// makeCgroups makes the cgroup in each hierarchy that has that of the pod, and returns their directories.
func makeCgroups(cgroupsPath string) (made []string, err error) {
	path := cgroupsPath
	if name := strings.Split(cgroupsPath, ":"); len(name) == 3 { // of systemd: slice, prefix and id
		path = filepath.Join(expand(name[0]), name[1]+"-"+name[2]+".scope")
	}
	if !filepath.IsAbs(path) {
		return nil, nil
	}
	for _, hierarchy := range []string{".", "*"} {
		parents, err := filepath.Glob(filepath.Join(cgroupRoot, hierarchy, filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		for _, parent := range parents {
			dir := filepath.Join(parent, filepath.Base(path))
			switch err := os.Mkdir(dir, 0o755); {
			case err == nil:
				made = append(made, dir)
			case !os.IsExist(err): // one hierarchy can have several names
				return made, fmt.Errorf("a cgroup for the pod's sandbox: %w", err)
			}
		}
	}
	return made, nil
}

// expand returns the path of a slice of systemd: a-b.slice is /a.slice/a-b.slice.
func expand(slice string) (path string) {
	name := strings.TrimSuffix(slice, ".slice")
	for i, char := range name + "-" {
		if char == '-' {
			path += "/" + name[:i] + ".slice"
		}
	}
	return path
}
