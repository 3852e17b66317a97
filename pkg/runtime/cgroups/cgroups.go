// Package cgroups finds control groups by the path that a container's specification names, and reads what the kernel counts in them.
package cgroups

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
)

// Root is where the hierarchy of cgroup v2, or those of v1, are mounted.
const Root = "/sys/fs/cgroup"

// Path returns the path of a control group in its hierarchy, given as in a container's specification: a path, or SLICE:PREFIX:NAME of systemd.
// It is empty for what is neither.
func Path(specified string) string {
	if name := strings.Split(specified, ":"); len(name) == 3 {
		return filepath.Join(expand(name[0]), name[1]+"-"+name[2]+".scope")
	}
	if !filepath.IsAbs(specified) {
		return ""
	}
	return filepath.Clean(specified)
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

// Reader returns a function that reads the statistics of the control group with a path, as *stats.Metrics of package cgroup1 or cgroup2: processor, memory, processes
// and, with v2, input and output. It is an error if the control group is missing in a hierarchy, as while a container is created.
func Reader(path string) (read func() (any, error), err error) {
	if cgroups.Mode() == cgroups.Unified {
		if _, err := os.Stat(filepath.Join(Root, path)); err != nil {
			return nil, err
		}
		group, err := cgroup2.Load(path, cgroup2.WithMountpoint(Root))
		if err != nil {
			return nil, err
		}
		return func() (any, error) {
			return group.StatFiltered(cgroup2.StatPids | cgroup2.StatCPU | cgroup2.StatMemory | cgroup2.StatMemoryEvents | cgroup2.StatIO)
		}, nil
	}
	mounted := v1()
	group, err := cgroup1.Load(cgroup1.StaticPath(path), cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) { return mounted, nil }))
	if err != nil {
		return nil, err
	}
	if len(group.Subsystems()) < len(mounted) {
		return nil, fs.ErrNotExist
	}
	return func() (any, error) {
		metrics, err := group.Stat(cgroup1.IgnoreNotExist)
		if metrics != nil && metrics.Memory != nil {
			metrics.Memory.Kernel, metrics.Memory.KernelTCP = nil, nil // they were not read
		}
		return metrics, err
	}, nil
}

// v1 returns the hierarchies of cgroup v1 that are read, of those that are mounted.
func v1() []cgroup1.Subsystem {
	return slices.DeleteFunc([]cgroup1.Subsystem{
		cgroup1.NewCpu(Root),
		cgroup1.NewCpuacct(Root),
		cgroup1.NewMemory(Root, cgroup1.IgnoreModules("kmem", "kmem.tcp"), cgroup1.OptionalSwap()),
		cgroup1.NewPids(Root),
	}, func(h cgroup1.Subsystem) bool {
		_, err := os.Stat(filepath.Join(Root, string(h.Name())))
		return err != nil
	})
}
