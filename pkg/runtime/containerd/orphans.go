package containerd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// A kill in the middle of a pod's start can leave a shim, or a network namespace, of which containerd's database
// knows nothing: containerd would never remove it. They are looked for once, after containerd has found its own
// again and before anybody can start a pod.

// netnsDir is where the CRI plugin mounts network namespaces.
const netnsDir = "/run/netns"

// removeOrphans removes shims and network namespaces that belong to no sandbox. What cannot be removed is logged:
// it is a leftover, not a reason not to start.
func (c Containerd) removeOrphans(ctx context.Context, client cri.RuntimeServiceClient) error {
	list, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("listing sandboxes: %w", err)
	}
	table, err := processes("/proc")
	if err != nil {
		return err
	}
	for _, p := range table {
		id := c.shimOf(p)
		if id != "" && !paths.Exists(filepath.Join(c.bundles(), id)) && sharesMounts(p.pid) {
			log.L.Warnf("ending a shim that an interrupted start left over: pid %d, sandbox %s", p.pid, id)
			killTree(table, p.pid)
		}
	}
	return c.removeNamespaces(ctx, client, list.Items)
}

// bundles is where containerd keeps a directory for each shim that it knows, in Kubernetes' namespace.
func (c Containerd) bundles() string {
	return filepath.Join(c.State, "io.containerd.runtime.v2.task", "k8s.io")
}

// process is a row of the process table.
type process struct {
	pid, parent int
	args        []string
}

// processes reads the process table.
func processes(proc string) ([]process, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("reading the process table: %w", err)
	}
	var table []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(proc, e.Name(), "stat"))
		if err != nil {
			continue // it has just ended
		}
		cmdline, err := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
		table = append(table, process{pid: pid, parent: parentOf(stat), args: args})
	}
	return table, nil
}

// parentOf reads the parent's pid from /proc/PID/stat: "pid (name) state parent ...", where the name may hold
// anything.
func parentOf(stat []byte) int {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return parent
}

// shimOf returns the sandbox for which p is a running shim of this containerd, "" if it is none.
func (c Containerd) shimOf(p process) string {
	if p.args[0] != c.Shim || value(p.args, "-address") != c.Socket || slices.Contains(p.args, "delete") || slices.Contains(p.args, "start") {
		return ""
	}
	return value(p.args, "-id")
}

// sharesMounts reports whether a process sees the same files as we do: another coracle, in a container perhaps, may
// have its shims at the same path.
func sharesMounts(pid int) bool {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	ours, errOurs := os.Readlink("/proc/self/ns/mnt")
	return err == nil && errOurs == nil && theirs == ours
}

// value is what follows the flag among the arguments.
func value(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// killTree kills a process and all below it, parents first so that none is started anew.
func killTree(table []process, pid int) {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		log.L.WithError(err).Warnf("ending process %d", pid)
	}
	for _, p := range table {
		if p.parent == pid {
			killTree(table, p.pid)
		}
	}
}

// removeNamespaces removes the CRI plugin's network namespaces that no sandbox has and in which no process lives. Another
// container runtime names its own alike: ours are those that our database mentions, where the CRI plugin enters each
// before it is given a network. One that a kill kept out of it stays, empty, until the machine restarts.
func (c Containerd) removeNamespaces(ctx context.Context, client cri.RuntimeServiceClient, sandboxes []*cri.PodSandbox) error {
	files, err := filepath.Glob(filepath.Join(netnsDir, "cni-*"))
	if err != nil || len(files) == 0 {
		return err
	}
	used := map[string]bool{}
	for _, sandbox := range sandboxes {
		status, err := client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandbox.Id, Verbose: true})
		if err != nil {
			return fmt.Errorf("asking for sandbox %s: %w", sandbox.Id, err)
		}
		path, err := namespaceOf(status.Info["info"])
		if err != nil {
			return fmt.Errorf("reading about sandbox %s: %w", sandbox.Id, err)
		}
		used[filepath.Base(path)] = true
	}
	lived, err := inhabited("/proc")
	if err != nil {
		return err
	}
	database, err := os.ReadFile(filepath.Join(c.Root, "io.containerd.metadata.v1.bolt", "meta.db"))
	if err != nil {
		return fmt.Errorf("reading containerd's database: %w", err)
	}
	for _, file := range files {
		if !mentions(database, filepath.Base(file)) {
			continue
		}
		var stat unix.Stat_t
		if used[filepath.Base(file)] || unix.Stat(file, &stat) != nil || lived[stat.Ino] {
			continue
		}
		log.L.Warnf("removing a network namespace that an interrupted start left over: %s", file)
		if err := unix.Unmount(file, unix.MNT_DETACH); err != nil && err != unix.EINVAL { // EINVAL: nothing is mounted
			log.L.WithError(err).Warn("unmounting " + file)
			continue
		}
		if err := os.Remove(file); err != nil {
			log.L.WithError(err).Warn("removing a network namespace")
		}
	}
	return nil
}

// mentions reports whether the bytes of containerd's database hold a name, also in a record that it has removed and not
// yet overwritten. Short names prove nothing.
func mentions(database []byte, name string) bool {
	const shortest = 32
	return len(name) >= shortest && bytes.Contains(database, []byte(name))
}

// namespaceOf finds the network namespace's path in what CRI tells about a sandbox; "" for the host's.
func namespaceOf(info string) (string, error) {
	var verbose struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string } `json:"namespaces"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
		Sandbox struct {
			Metadata struct{ NetNSPath string }
		} `json:"sandboxMetadata"`
	}
	if err := json.Unmarshal([]byte(info), &verbose); err != nil {
		return "", err
	}
	if verbose.Sandbox.Metadata.NetNSPath != "" {
		return verbose.Sandbox.Metadata.NetNSPath, nil
	}
	for _, ns := range verbose.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" {
			return ns.Path, nil
		}
	}
	return "", nil
}

// inhabited returns the inodes of the network namespaces in which processes live.
func inhabited(proc string) (map[uint64]bool, error) {
	links, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "ns", "net"))
	if err != nil {
		return nil, err
	}
	out := map[uint64]bool{}
	for _, link := range links {
		var stat unix.Stat_t
		if unix.Stat(link, &stat) == nil {
			out[stat.Ino] = true
		}
	}
	return out, nil
}
