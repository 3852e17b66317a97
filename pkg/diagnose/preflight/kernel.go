package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Apart runs do on a thread that gets new namespaces and ends with them, so that nothing it makes is seen by
// anybody or stays.
func Apart(namespaces int, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread never ends, and what /proc tells of the process is told of this thread.
			result <- Apart(namespaces, do) // on another one, because this one is taken
			runtime.UnlockOSThread()
			return
		}
		// Never unlocked from here on: the thread ends with this function.
		if err := unix.Unshare(namespaces); err != nil {
			result <- trouble("the kernel must have them, and in a container it takes --privileged", "making namespaces: %v", err)
			return
		}
		result <- do()
	}()
	return <-result
}

// Mounts tries all namespaces that pods have, and to mount an overlay in a directory as containerd does.
func Mounts(dir string) error {
	const all = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID
	return Apart(all, func() error {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("trying out mounts: %w", err)
		}
		return overlay(dir)
	})
}

func overlay(data string) error {
	dir, err := os.MkdirTemp(data, ".preflight-*")
	if err != nil {
		return nil // the check of the data directory says it better
	}
	defer os.RemoveAll(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(at(name), 0o700); err != nil {
			return nil
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", at("lower"), at("upper"), at("work"))
	err = unix.Mount("overlay", at("merged"), "overlay", 0, options+",volatile") // its end would sync the whole disk
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("overlay", at("merged"), "overlay", 0, options) // before Linux 5.10
	}
	switch {
	case err == nil:
		return unix.Unmount(at("merged"), unix.MNT_DETACH)
	case errors.Is(err, unix.ENODEV):
		return Warning{trouble("load or build in the module overlay",
			"the kernel has no overlayfs, so image layers are copied, which is slow and takes space")}
	case errors.Is(err, unix.EINVAL):
		return Warning{trouble(fmt.Sprintf("in a container, mount a volume there (docker run -v coracle:%s)", data),
			"overlayfs does not work on the file system of %s, so image layers are copied, which is slow and takes space", data)}
	}
	return fmt.Errorf("mounting an overlay in %s: %w", data, err)
}

// link is a kind of network link that we make.
type link struct {
	kind, use string
	needed    func(config.Config) bool
}

var links = []link{
	{"bridge", "connects the pods of this node", ownNetwork},
	{"veth", "connects a pod to its node", ownNetwork},
	{"vxlan", "connects the pods of different nodes (or choose --flannel-backend=host-gw)",
		func(cfg config.Config) bool { return cfg.Network.Backend == config.VXLAN }},
}

func ownNetwork(cfg config.Config) bool { return cfg.Network.Backend != config.BackendNone }

// network tries to make each kind of link, and to talk to nftables. Asking makes the kernel load its modules.
func network(cfg config.Config) error {
	return Apart(unix.CLONE_NEWNET, func() error {
		var wrong []error
		for i, l := range links {
			if !l.needed(cfg) {
				continue
			}
			err := newLink(l.kind, fmt.Sprintf("probe%d", i))
			if errors.Is(err, unix.EOPNOTSUPP) {
				wrong = append(wrong, trouble("load or build in the module "+l.kind, "the kernel has no %s links, and one %s", l.kind, l.use))
			} else if errors.Is(err, unix.EPERM) {
				wrong = append(wrong, trouble("in a container, start it with --privileged", "making a %s link is not permitted", l.kind))
			}
		}
		if err := nftables(); err != nil {
			wrong = append(wrong, trouble("load or build in the module nf_tables", "the kernel has no nftables (%v), which Services are made with", err))
		}
		return errors.Join(wrong...)
	})
}

// bridgeSettings is there once bridges hand packets to nftables.
const bridgeSettings = "/proc/sys/net/bridge/bridge-nf-call-iptables"

// modprobeTimeout is what loading a module may take.
const modprobeTimeout = 10 * time.Second

// bridgeNetfilter sees to the one module that the kernel does not load by itself. Without it a pod cannot reach
// a Service whose pod is on the same node: the answer would go past the address translation.
func bridgeNetfilter(cfg config.Config) error {
	if !ownNetwork(cfg) || !missing(bridgeSettings) {
		return nil
	}
	const module = "br_netfilter"
	ctx, cancel := context.WithTimeout(context.Background(), modprobeTimeout)
	defer cancel()
	for _, program := range []string{"modprobe", "/sbin/modprobe", "/usr/sbin/modprobe"} {
		_ = exec.CommandContext(ctx, program, module).Run() // where we are PID 1 its exit status may be lost
		if !missing(bridgeSettings) {
			return nil
		}
	}
	return Warning{trouble(fmt.Sprintf("run modprobe %s on the host (a container cannot)", module),
		"the kernel's %s is not loaded: pods of one node do not reach each other through a Service", module)}
}
