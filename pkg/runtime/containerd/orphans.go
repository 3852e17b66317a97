package containerd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/process"
)

// If containerd is killed while it starts a pod, a shim or a network namespace may stay that is not in its database, and that it
// would never remove. If it starts on a full disk, it forgets running containers whose state it cannot write. The functions here remove both
// once, after containerd has recovered its containers and before a pod can start.

// netnsDir is where the CRI plugin mounts network namespaces.
const netnsDir = "/run/netns"

// errNoRoom says that containers were forgotten on a disk that had room just before: another start may find them all.
var errNoRoom = errors.New("the state of running containers cannot be written")

// removeOrphans removes shims and network namespaces that belong to no sandbox, and ends containers that the kubelet cannot see and would
// start once more. It logs what it cannot remove, and goes on. room says that the disk had room when containerd started: if there is none any
// more and containers were forgotten, it ends nothing and returns errNoRoom, startsForRoom times at most.
func (c Containerd) removeOrphans(ctx context.Context, client cri.RuntimeServiceClient, room bool) error {
	list, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("listing sandboxes: %w", err)
	}
	containers, err := client.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return fmt.Errorf("listing containers: %w", err)
	}
	table, err := process.All("/proc")
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, s := range list.Items {
		known[s.Id] = true
	}
	for _, container := range containers.Containers {
		known[container.Id] = true
	}
	forgotten := c.forgotten(table, known)
	if room && len(forgotten) > 0 && nearlyFull(c.Root) && c.mayStartAgain() {
		return fmt.Errorf("%w: the disk of %s is full: make room there, and containerd starts again by itself", errNoRoom, c.Root)
	}
	_ = os.Remove(c.startsFile())
	for id, pid := range forgotten {
		log.L.Warnf("ending container %s, whose state could not be read or written: the kubelet starts it again", id)
		killTree(table, pid)
	}
	for _, p := range table {
		id := p.Value("-id") // none, if it is one of package sharedshims
		if c.isShim(p) && id != "" && !paths.Exists(filepath.Join(c.bundles(), id)) && p.SharesMounts("/proc") {
			log.L.Warnf("ending a shim that an interrupted start left over: pid %d, sandbox %s", p.PID, id)
			killTree(table, p.PID)
		}
	}
	return c.removeNamespaces(ctx, client, list.Items)
}

// forgotten returns the CRI plugin's containers that run and that it does not know, pause containers among them, with the process that runc wrote
// into their bundles. Containers that people make with other clients have no annotation of CRI.
func (c Containerd) forgotten(table []process.Process, known map[string]bool) map[string]int {
	out, running := map[string]int{}, map[int]process.Process{}
	for _, p := range table {
		running[p.PID] = p
	}
	files, _ := filepath.Glob(filepath.Join(c.bundles(), "*", "init.pid"))
	for _, file := range files {
		bundle := filepath.Dir(file)
		id := filepath.Base(bundle)
		if known[id] {
			continue
		}
		text, _ := os.ReadFile(file)
		spec, _ := os.ReadFile(filepath.Join(bundle, "config.json"))
		pid, err := strconv.Atoi(string(text))
		if err != nil || !bytes.Contains(spec, []byte("io.kubernetes.cri.container-type")) {
			continue
		}
		shim := running[running[pid].Parent]
		if !c.isShim(shim) || !shim.SharesMounts("/proc") {
			continue // it has ended, and its number may be another process's
		}
		out[id] = pid
	}
	return out
}

// bundles is the directory with a subdirectory for each container that containerd knows, in Kubernetes' namespace.
func (c Containerd) bundles() string {
	return filepath.Join(c.State, "io.containerd.runtime.v2.task", "k8s.io")
}

// isShim reports whether p is a running shim of this containerd. The directory of its executable is that of the version that started it,
// without links.
func (c Containerd) isShim(p process.Process) bool {
	return len(p.Args) > 0 && filepath.Base(p.Args[0]) == filepath.Base(c.Shim) && p.Value("-address") == c.Socket &&
		!slices.Contains(p.Args, "delete") && !slices.Contains(p.Args, "start")
}

// killTree kills a process and its descendants, parents first so that none is started anew.
func killTree(table []process.Process, pid int) {
	for _, p := range process.Tree(table, pid) {
		if err := p.Signal(unix.SIGKILL); err != nil {
			log.L.WithError(err).Warn("ending a process of an orphan shim")
		}
	}
}

// removeNamespaces removes the CRI plugin's network namespaces that no sandbox uses and no process is in. Other container runtimes use
// the same names, so only namespaces that are mentioned in this containerd's database are removed. The CRI plugin writes each there
// before it sets up the network. A namespace that was not written yet stays until the machine restarts.
func (c Containerd) removeNamespaces(ctx context.Context, client cri.RuntimeServiceClient, sandboxes []*cri.PodSandbox) error {
	files, err := filepath.Glob(filepath.Join(netnsDir, "cni-*"))
	if err != nil || len(files) == 0 {
		return err
	}
	used := map[string]bool{}
	for _, sandbox := range sandboxes {
		status, err := client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandbox.Id, Verbose: true})
		if err != nil {
			return fmt.Errorf("reading the status of sandbox %s: %w", sandbox.Id, err)
		}
		path, err := namespaceOf(status.Info["info"])
		if err != nil {
			return fmt.Errorf("reading the status of sandbox %s: %w", sandbox.Id, err)
		}
		used[filepath.Base(path)] = true
	}
	inUse, err := namespacesInUse("/proc")
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
		if used[filepath.Base(file)] || unix.Stat(file, &stat) != nil || inUse[stat.Ino] {
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

// mentions reports whether the database contains a name, also in a deleted record that is not overwritten yet. Short names could be
// there by chance.
func mentions(database []byte, name string) bool {
	const shortest = 32
	return len(name) >= shortest && bytes.Contains(database, []byte(name))
}

// namespaceOf returns the path of a network namespace from the verbose status of a sandbox, "" for that of the host.
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

// namespacesInUse returns the inodes of the network namespaces of all threads, see package pauseless.
func namespacesInUse(proc string) (map[uint64]bool, error) {
	links, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "task", "[0-9]*", "ns", "net"))
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
