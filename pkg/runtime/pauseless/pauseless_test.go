package pauseless

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// pod is the specification of an ordinary pod's sandbox, after the changes.
func pod(changes ...func(*specs.Spec)) *specs.Spec {
	s := &specs.Spec{Hostname: "web-0", Linux: &specs.Linux{
		CgroupsPath: "/kubepods/pod1/box",
		Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
			{Type: specs.NetworkNamespace, Path: "/run/netns/cni-1"},
		},
		Sysctl: map[string]string{"net.ipv4.ip_unprivileged_port_start": "7"},
	}}
	for _, change := range changes {
		change(s)
	}
	return s
}

// without is the change that leaves out a namespace.
func without(kind specs.LinuxNamespaceType) func(*specs.Spec) {
	return func(s *specs.Spec) {
		var left []specs.LinuxNamespace
		for _, ns := range s.Linux.Namespaces {
			if ns.Type != kind {
				left = append(left, ns)
			}
		}
		s.Linux.Namespaces = left
	}
}

// with is the change that adds a namespace.
func with(kind specs.LinuxNamespaceType, path string) func(*specs.Spec) {
	return func(s *specs.Spec) {
		without(kind)(s)
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: kind, Path: path})
	}
}

// sysctl is the change that sets one.
func sysctl(name string) func(*specs.Spec) {
	return func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{name: "1"} }
}

func TestPossible(t *testing.T) {
	noSysctls := func(s *specs.Spec) { s.Linux.Sysctl = nil }
	for name, test := range map[string]struct {
		spec *specs.Spec
		want bool
	}{
		"ordinary":                      {pod(), true},
		"network and name of the host":  {pod(without(specs.NetworkNamespace), without(specs.UTSNamespace), noSysctls), true},
		"IPC and processes of the host": {pod(without(specs.IPCNamespace), without(specs.PIDNamespace)), true},
		"own users":                     {pod(with(specs.UserNamespace, "")), false},
		"users of another":              {pod(with(specs.UserNamespace, "/run/pinned")), false},
		"own time":                      {pod(with(specs.TimeNamespace, "")), false},
		"IPC of another":                {pod(with(specs.IPCNamespace, "/proc/1/ns/ipc")), false},
		"network that does not exist":   {pod(with(specs.NetworkNamespace, "")), false},
		"hooks":                         {pod(func(s *specs.Spec) { s.Hooks = &specs.Hooks{} }), false},
		"not Linux":                     {&specs.Spec{}, false},
		"the kernel's sysctl":           {pod(sysctl("kernel.panic")), false},
		"IPC's sysctl":                  {pod(sysctl("kernel.shmmax")), false},
		"sysctl with a path":            {pod(sysctl("net.ipv4/../../kernel.panic")), false},
		"sysctl that climbs":            {pod(sysctl("net...kernel.panic")), false},
		"the host's network's sysctl":   {pod(without(specs.NetworkNamespace)), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Possible(test.spec); got != test.want {
				t.Errorf("Possible is %t", got)
			}
		})
	}
}

// TestVerify tries what a container may join: a pid or user namespace would be the host's.
func TestVerify(t *testing.T) {
	for _, test := range []struct {
		hostPID bool
		kind    specs.LinuxNamespaceType
		path    string
		ok      bool
	}{
		{false, specs.NetworkNamespace, "/proc/77/ns/net", true},
		{false, specs.IPCNamespace, "/proc/77/ns/ipc", true},
		{false, specs.UTSNamespace, "/proc/77/ns/uts", true},
		{false, specs.PIDNamespace, "/proc/77/ns/pid", false},
		{true, specs.PIDNamespace, "/proc/77/ns/pid", true},
		{false, specs.PIDNamespace, "/proc/77/ns/pid_for_children", false},
		{false, specs.PIDNamespace, "/proc/78/ns/pid", true}, // of another container
		{true, specs.UserNamespace, "/proc/77/ns/user", false},
		{true, specs.MountNamespace, "/proc/77/ns/mnt", false},
		{true, specs.CgroupNamespace, "/proc/77/ns/cgroup", false},
	} {
		s := &Sandbox{TID: 77, hostPID: test.hostPID}
		if err := s.Verify(pod(with(test.kind, test.path))); (err == nil) != test.ok {
			t.Errorf("%s with hostPID %t: %v", test.path, test.hostPID, err)
		}
	}
}

// network returns the path of a new network namespace.
func network(t *testing.T) string {
	t.Helper()
	path, end := make(chan string), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			path <- ""
			return
		}
		path <- fmt.Sprintf("/proc/%d/ns/net", unix.Gettid())
		<-end
	}()
	t.Cleanup(func() { close(end) })
	made := <-path
	if made == "" {
		t.Skip("this needs root, to make namespaces")
	}
	return made
}

// in runs a function on a thread that has joined a namespace.
func in(t *testing.T, path string, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		file, err := os.Open(path)
		if err == nil {
			defer file.Close()
			err = unix.Setns(int(file.Fd()), 0)
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

const portStart = "/proc/sys/net/ipv4/ip_unprivileged_port_start"

func TestStart(t *testing.T) {
	cgroupRoot = t.TempDir()
	if err := os.MkdirAll(filepath.Join(cgroupRoot, "cpu/kubepods/pod1"), 0o755); err != nil {
		t.Fatal(err)
	}
	netns := network(t)
	host, _ := os.Hostname()
	before, _ := os.ReadFile(portStart)
	s, err := Start(pod(with(specs.NetworkNamespace, netns)))
	if err != nil {
		t.Fatal(err)
	}
	path := func(kind string) string { return fmt.Sprintf("/proc/%d/ns/%s", s.TID, kind) }
	own := func(kind string) string { link, _ := os.Readlink("/proc/self/ns/" + kind); return link }
	link := func(path string) string { link, _ := os.Readlink(path); return link }
	if link(path("net")) != link(netns) {
		t.Errorf("the network is %s, not %s", link(path("net")), link(netns))
	}
	for _, kind := range []string{"ipc", "uts"} {
		if got := link(path(kind)); got == own(kind) || got == "" {
			t.Errorf("%s is %q, the host's is %q", kind, got, own(kind))
		}
	}
	in(t, path("uts"), func() {
		if name, _ := os.Hostname(); name != "web-0" {
			t.Errorf("the host's name is %q", name)
		}
	})
	in(t, path("net"), func() {
		if value, _ := os.ReadFile(portStart); string(value) != "7\n" {
			t.Errorf("the sysctl is %q", value)
		}
	})
	if name, _ := os.Hostname(); name != host {
		t.Errorf("the name of the host itself is %q now", name)
	}
	if after, _ := os.ReadFile(portStart); string(after) != string(before) {
		t.Errorf("the host's sysctl is %q, it was %q", after, before)
	}
	box := filepath.Join(cgroupRoot, "cpu/kubepods/pod1/box")
	if _, err := os.Stat(box); err != nil {
		t.Error(err)
	}
	tid := s.TID
	s.Stop()
	if _, err := os.Stat(box); err == nil {
		t.Error("the cgroup is left")
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", tid)); os.IsNotExist(err) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the thread is left")
		}
	}
}

// TestStartFails leaves no thread in half of the namespaces.
func TestStartFails(t *testing.T) {
	network(t)
	if _, err := Start(pod(with(specs.NetworkNamespace, "/nothing/net"))); err == nil || !strings.Contains(err.Error(), "/nothing/net") {
		t.Errorf("the error is %v", err)
	}
}

// TestCgroups: a sandbox has a cgroup where the pod has one, and in only one of the hierarchies of cgroup v1. It is removed wherever it is.
func TestCgroups(t *testing.T) {
	cgroupRoot = t.TempDir()
	mkdir := func(dir string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(cgroupRoot, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	slice := "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_c.slice"
	for _, dir := range []string{slice, "cpu/kubepods/pod1", "memory/kubepods/pod1", "memory/kubepods/pod2", "cpu,cpuacct/kubepods/pod3"} {
		mkdir(dir)
	}
	for specified, want := range map[string]string{
		"kubepods-burstable-podab_c.slice:cri-containerd:0123": slice + "/cri-containerd-0123.scope",
		"/kubepods/pod1/box":    "cpu/kubepods/pod1/box",
		"/kubepods/pod2/box":    "memory/kubepods/pod2/box",
		"/kubepods/pod3/box":    "cpu,cpuacct/kubepods/pod3/box",
		"/kubepods/nothing/box": "",
		"":                      "",
	} {
		if err := makeCgroup(specified); err != nil {
			t.Errorf("%q: %v", specified, err)
		}
		made, _ := filepath.Glob(filepath.Join(cgroupRoot, "*/kubepods/*/box"))
		inSlice, _ := filepath.Glob(filepath.Join(cgroupRoot, slice, "*"))
		made = append(made, inSlice...)
		if want == "" && len(made) > 0 || want != "" && !slices.Equal(made, []string{filepath.Join(cgroupRoot, want)}) {
			t.Errorf("the cgroups of %q are %v, want %q", specified, made, want)
		}
		mkdir("memory/kubepods/pod1/box") // as older releases did
		Clean(specified)
		Clean("/kubepods/pod1/box")
		for _, dir := range append(made, filepath.Join(cgroupRoot, "memory/kubepods/pod1/box")) {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left", dir)
			}
		}
	}
}

// TestMainThread: many at once, so that the main thread, which is free in a test, is among those that are tried.
func TestMainThread(t *testing.T) {
	runtime.LockOSThread() // most often not the main thread
	defer runtime.UnlockOSThread()
	end, tids := make(chan struct{}), make(chan int)
	for range 50 {
		onThread(func() {
			tids <- unix.Gettid()
			<-end
		})
	}
	seen := map[int]bool{unix.Getpid(): true}
	for range 50 {
		tid := <-tids
		if seen[tid] {
			t.Errorf("thread %d is the main one, or used twice", tid)
		}
		seen[tid] = true
	}
	close(end)
}
