package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/front"
	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// parseRun is what coracle run makes of its arguments.
func parseRun(args []string) (o runOptions, err error) {
	c := runCommandWith(func(asked runOptions) error { o = asked; return nil })
	c.SilenceErrors, c.SilenceUsage = true, true
	(&cobra.Command{Use: "coracle"}).AddCommand(c)
	c.Parent().SetArgs(append([]string{"run"}, args...))
	c.Parent().SilenceErrors = true
	err = c.Parent().Execute()
	return o, err
}

func TestParseRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parseRun([]string{"--servers", "3", "-f", file, "--artifacts", "out", "--", "make", "--nodes", "9"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.command, []string{"make", "--nodes", "9"}) || o.plan.Nodes != 3 || !o.plan.Ephemeral || !filepath.IsAbs(o.artifacts) {
		t.Errorf("%+v", o)
	}
	if o, err := parseRun([]string{"--disk", "make", "-n", "9"}); err != nil || len(o.command) != 3 || o.plan.Ephemeral {
		t.Errorf("without --: %+v (%v)", o, err)
	}
	if o, err := parseRun([]string{"--output", "json", "--listen", ":6443"}); err != nil || o.output != "json" || o.listen != ":6443" {
		t.Errorf("without a command: %+v (%v)", o, err)
	}
	for want, args := range map[string][]string{
		"say what to run":   {"--nodes", "2"},
		"--manifest: ":      {"-f", file + "x", "true"},
		"--image: ":         {"--image", file + "x", "true"},
		"less than one":     {"--nodes", "0", "true"},
		"cannot hold 3":     {"--servers", "3", "--nodes", "2", "true"},
		"unknown flag":      {"--nonsense", "true"},
		"must consist of":   {"--name", "No", "true"},
		"without a command": {"--output", "json", "--", "true"},
		"env|json":          {"--output", "xml"},
		"none":              {"--from", "none", "--data-dir", t.TempDir(), "true"},
	} {
		if _, err := parseRun(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestRunEnvironment(t *testing.T) {
	t.Setenv("KUBECONFIG", "/mine")
	t.Setenv("HOME", "/root")
	h := localcluster.CommandDir{Dir: "/tmp/coracle-a", Cluster: "a"}
	env := caller{}.environ(h)
	for _, want := range []string{"KUBECONFIG=/tmp/coracle-a/kubeconfig.yaml", "KUBECACHEDIR=/tmp/coracle-a/cache", "CORACLE_CLUSTER=a", "HOME=/root"} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is not in the environment", want)
		}
	}
	if slices.Contains(env, "KUBECONFIG=/mine") {
		t.Error("the user's kubeconfig is in the environment too")
	}
	for path, want := range map[string]string{"/bin": "/bin:/x", "/bin:": "/bin:/x", "": front.DefaultPath + ":/x"} {
		t.Setenv("PATH", path)
		if err := extendPath("/x"); err != nil || os.Getenv("PATH") != want {
			t.Errorf("PATH %q becomes %q (%v)", path, os.Getenv("PATH"), err)
		}
	}
}

func TestJobCodes(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 9": 9, "kill -TERM $$": 143, "sleep 60 & exit 3": 3} {
		j, err := newJob([]string{"sh", "-c", script}, os.Environ(), nil)
		if err != nil {
			t.Fatal(err)
		}
		j.tty = nil // whatever runs this test goes on in the foreground
		j.cmd.SysProcAttr.Foreground, j.cmd.Stdin, j.cmd.Stdout, j.cmd.Stderr = false, nil, nil, nil
		group := 0
		if code, err := j.run(func(g int) { group = g }); code != want || err != nil {
			t.Errorf("%q: exit code %d (%v), want %d", script, code, err, want)
		}
		if err := syscall.Kill(-group, 0); err == nil && script != "sleep 60 & exit 3" {
			t.Errorf("%q: processes are left", script)
		}
	}
}

// TestArtifactsWithoutSecrets: the values of Secrets, and what looks like one, are not in what the caller gets.
func TestArtifactsWithoutSecrets(t *testing.T) {
	secrets := secretsIn([]byte(`{"kind": "List", "items": [{"kind": "Secret", "data": {"word": "Y29ycmVjdC1ob3JzZS03", "username": "cG9zdGdyZXM="}}]}`))
	const text = "note: with-correct-horse-7\npassword: of the form\nuser: postgres\n"
	const want = "note: with-(removed)\npassword: (removed)\nuser: postgres\n"
	if got := (caller{}).artifacts("out", secrets...).Clean(text); got != want {
		t.Errorf("got %q", got)
	}
}

// TestPrintAccess: programs get one line of JSON, or lines that end with an empty one.
func TestPrintAccess(t *testing.T) {
	a := access{Name: "a", Kubeconfig: "/k", Env: map[string]string{"PATH": "/bin", "KUBECONFIG": "/k"}}
	for format, want := range map[string]string{
		"env":  "KUBECONFIG=/k\nPATH=/bin\n\n",
		"json": `{"name":"a","version":"","kubeconfig":"/k","server":"","machine":"","nodes":null,"env":{"KUBECONFIG":"/k","PATH":"/bin"}}` + "\n",
	} {
		var out strings.Builder
		if err := a.print(&out, format); err != nil || out.String() != want {
			t.Errorf("%s: %q (%v), want %q", format, out.String(), err, want)
		}
	}
}
