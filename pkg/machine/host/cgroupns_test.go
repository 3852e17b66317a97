package host

import (
	"slices"
	"testing"
)

func TestUnmounted(t *testing.T) {
	const cgroups = "4:net_cls,net_prio:/\n3:cpu,cpuacct:/\n2:memory:/\n1:name=systemd:/\n0::/\n"
	const table = "603 602 0:53 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" +
		"604 603 0:31 / /sys/fs/cgroup/memory rw,relatime master:16 - cgroup cgroup rw,memory\n" +
		"605 603 0:32 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
	if got, want := unmounted(cgroups, mounts(t, table)), []string{"net_cls,net_prio", "name=systemd"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := unmounted("0::/\n", nil); got != nil {
		t.Errorf("under cgroup v2: %q", got)
	}
}

func TestBelow(t *testing.T) {
	for name, c := range map[string]struct {
		cgroups string
		want    bool
	}{
		"v1, the engine's names":    {"2:memory:/docker/0a1b\n1:name=systemd:/docker/0a1b\n0::/docker/0a1b\n", true},
		"v1, a namespace":           {"2:memory:/\n1:name=systemd:/\n0::/\n", false},
		"v2, the engine's names":    {"0::/system.slice/docker-0a1b.scope\n", true},
		"v2, a namespace":           {"0::/\n", false},
		"v1, in one hierarchy only": {"2:memory:/docker/0a1b\n1:pids:/\n", true},
		"a machine's init":          {"0::/\n", false},
		"nothing":                   {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := below(c.cgroups); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
