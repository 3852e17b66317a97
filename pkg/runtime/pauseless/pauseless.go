// Package pauseless lets a thread hold the namespaces of a pod in place of a pause container, whose only work is to be a process with
// namespaces that the pod's containers join. A thread takes no execution of runc, no root file system and next to no memory. Its id
// takes the place of the pause process's: /proc/ID/ns and /proc/ID/net show the thread's namespaces.
package pauseless

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Annotation of a sandbox's specification asks the shim for a thread instead of a process. Its value is "true".
const Annotation = "coracle.dev/pauseless"

// Asked reports whether a specification is that of a sandbox that can be a thread, and asks for it. Users can set annotations of containers where containerd is configured to pass them on.
func Asked(spec *specs.Spec) bool {
	return spec.Annotations[Annotation] == "true" && spec.Annotations["io.kubernetes.cri.container-type"] == "sandbox" && Possible(spec)
}

// netSysctl is a sysctl of a network namespace, as runc takes it.
var netSysctl = regexp.MustCompile(`^net(\.[a-zA-Z0-9_-]+)+$`)

// Possible reports whether a thread can hold the namespaces of a sandbox: the network's, which exists already, and new ones for IPC and
// the host's name. A process in a pid or user namespace that containers join cannot be a thread of another process. The pid namespace
// is in the specification of every pod but those with the host's; the caller knows whether containers join it.
func Possible(spec *specs.Spec) bool {
	if spec.Linux == nil || spec.Hooks != nil {
		return false
	}
	network := false
	for _, ns := range spec.Linux.Namespaces {
		switch ns.Type {
		case specs.NetworkNamespace:
			network = ns.Path != ""
			if !network {
				return false
			}
		case specs.IPCNamespace, specs.UTSNamespace, specs.PIDNamespace, specs.MountNamespace, specs.CgroupNamespace:
			if ns.Path != "" {
				return false
			}
		default:
			return false
		}
	}
	for name := range spec.Linux.Sysctl {
		if !network || !netSysctl.MatchString(name) {
			return false
		}
	}
	return true
}

// namespacePath is how containerd names a namespace that a container joins.
var namespacePath = regexp.MustCompile(`^/proc/(\d+)/ns/(\w+)$`)

// Verify returns an error if a container would join a namespace of the sandbox that its thread does not have, and so would get the host's.
func (s *Sandbox) Verify(container *specs.Spec) error {
	if container.Linux == nil {
		return nil
	}
	for _, ns := range container.Linux.Namespaces {
		path := namespacePath.FindStringSubmatch(ns.Path)
		if path == nil || path[1] != strconv.Itoa(s.TID) {
			continue
		}
		switch kind := path[2]; {
		case kind == "net", kind == "ipc", kind == "uts":
		case strings.HasPrefix(kind, "pid") && s.hostPID:
		default:
			return fmt.Errorf("the container would join the namespace %s, which is the host's: its pod has no pause container", ns.Path)
		}
	}
	return nil
}
