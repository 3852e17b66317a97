package host

import "testing"

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
