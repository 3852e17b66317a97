package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/golden"
)

// printed is what f writes to standard output.
func printed(t *testing.T, f func() error) (string, error) {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "stdout")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stdout := os.Stdout
	os.Stdout = out
	defer func() { os.Stdout = stdout }()
	failed := f()
	data, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(data), failed
}

func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{
		"help": {"help"}, "help-wait": {"wait", "-h"}, "help-version": {"help", "version"},
		"help-run": {"help", "run"}, "help-exit-codes": {"help", "exit-codes"}, "help-up": {"help", "up"}, "help-down": {"down", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CORACLE_DATA_DIR", "")
			t.Setenv("CORACLE_RUN_DIR", "")
			var code int
			text, _ := printed(t, func() error { code = run(append([]string{"coracle"}, args...)); return nil })
			if code != 0 {
				t.Fatalf("exit code %d", code)
			}
			golden.Check(t, "testdata/"+name+".golden", text)
		})
	}
}

func TestExitCodes(t *testing.T) {
	stderr := os.Stderr
	os.Stderr, _ = os.Open(os.DevNull)
	defer func() { os.Stderr = stderr }()
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"help"}, 0},
		{[]string{"wait", "--help"}, 0},
		{[]string{"nonsense"}, 2},
		{[]string{"wait", "--nonsense"}, 2},
		{[]string{"wait", "--for=nonsense"}, 2},
		{[]string{"wait", "argument"}, 2},
		{[]string{"version", "-o", "xml"}, 2},
		{[]string{"server", "--https-listen-port=x"}, 2},
		{[]string{"agent", "--server=https://192.0.2.1:6443", "--data-dir=/proc/none"}, 3},
		{[]string{"server", "--help"}, 0},
	} {
		var code int
		_, _ = printed(t, func() error { code = run(append([]string{"coracle"}, c.args...)); return nil })
		if code != c.want {
			t.Errorf("%q: exit code %d, want %d", c.args, code, c.want)
		}
	}
}

func TestUnknownCommand(t *testing.T) {
	for name, want := range map[string]string{
		"srver":   "unknown command \"srver\" for \"coracle\"\nDid you mean this?\n\tserver",
		"st":      "unknown command \"st\" for \"coracle\"\nDid you mean this?\n\tup\n\tctr\n\tstatus",
		"zzzzzzz": "unknown command \"zzzzzzz\" for \"coracle\"\nRun 'coracle help' for all commands.",
	} {
		if got := dispatch("coracle", []string{name}).Error(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	dirs := paths.Dirs{Data: "/d"}
	for path, want := range map[string]string{
		"/a:/b": "PATH=/d/bin:/a:/b:/d/bin/busybox.d", "": "PATH=/d/bin:" + standardPath + ":/d/bin/busybox.d",
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

func TestVersionFormats(t *testing.T) {
	v := versions{Version: "v1", Commit: "0123456789abcdef", Go: "go1", Platform: "linux/amd64"}
	for format, want := range map[string]string{
		"":     "coracle v1 (0123456789ab, go1, linux/amd64)\n",
		"json": "{\n  \"version\": \"v1\",\n  \"commit\": \"0123456789abcdef\",\n  \"go\": \"go1\",\n  \"platform\": \"linux/amd64\"\n}\n",
		"yaml": "version: v1\ncommit: 0123456789abcdef\ngo: go1\nplatform: linux/amd64\n",
	} {
		if got, err := printed(t, func() error { return v.print(format) }); err != nil || got != want {
			t.Errorf("%s: %q (%v)", format, got, err)
		}
	}
}
