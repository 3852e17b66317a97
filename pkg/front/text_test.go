package front

import (
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/golden"
)

func TestEnvironment(t *testing.T) {
	dirs := paths.Dirs{Data: "/d"}
	for path, want := range map[string]string{
		"/a:/b": "PATH=/d/bin:/a:/b:/d/bin/busybox.d", "": "PATH=/d/bin:" + DefaultPath + ":/d/bin/busybox.d",
	} {
		t.Setenv("PATH", path)
		t.Setenv("NOTIFY_SOCKET", "/x")
		t.Setenv("HTTPS_PROXY", "http://proxy")
		env := environment(config.Config{Dirs: dirs})
		if env[0] != want {
			t.Errorf("%s, want %s", env[0], want)
		}
		has := func(prefix string) int {
			n := 0
			for _, e := range env {
				if strings.HasPrefix(e, prefix) {
					n++
				}
			}
			return n
		}
		if has("PATH=") != 1 || has("NOTIFY_SOCKET=") != 0 || !slices.Contains(env, "HTTPS_PROXY=http://proxy") {
			t.Errorf("%q", env)
		}
	}
}

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		children []state.Child
		want     string
	}{
		{[]state.Child{{Name: "a", State: "ready"}, {Name: "b", State: "ready"}}, "ready"},
		{[]state.Child{{Name: "a", State: "starting", Status: "etcd"}, {Name: "b", State: "ready"}}, "a starting: etcd; b ready"},
		{[]state.Child{{Name: "a", State: "backoff", LastExit: "was killed (SIGKILL)"}}, "a backoff: was killed (SIGKILL)"},
		{[]state.Child{{Name: "a", State: "starting", LastExit: "was killed (SIGKILL)"}}, "a starting again, it was killed (SIGKILL)"},
	} {
		if got := summary(c.children); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestWelcome(t *testing.T) {
	cfg := config.Config{Dirs: paths.Default()}
	cfg.API.KubeconfigPath = "/etc/coracle/kubeconfig.yaml"
	golden.Check(t, "testdata/welcome.golden", welcomeText(cfg, 2340e6))
	cfg.Dirs.Run = "/run/other"
	golden.Check(t, "testdata/welcome-other.golden", welcomeText(cfg, 2340e6))
}
