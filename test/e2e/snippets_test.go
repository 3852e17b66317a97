package e2e

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/coracle-dev/coracle/test/executable"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// workspace is the checkout of a CI job: an image, manifests, and tests.
const workspace = "/srv/work"

func (l laptop) workspace() {
	l.t.Helper()
	l.Run("sh", "-c", "mkdir -p "+workspace+"/deploy && cp /var/lib/coracle/images/agnhost.tar "+workspace+"/app.tar && cat > "+workspace+
		"/deploy/up.yaml <<'EOF'\n"+manifest(l.t, "up.yaml")+"EOF")
	l.script("e2e.sh", "#!/bin/sh\nkubectl get daemonset web -o jsonpath='{.status.numberReady}'\n")
}

// script writes a program into the workspace.
func (l laptop) script(name, text string) {
	l.t.Helper()
	if err := executable.Write(l.Path(filepath.Join(workspace, name)), []byte(text)); err != nil {
		l.t.Fatal(err)
	}
}

// source is the path of a file in this repository.
func source(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func decode(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(source(t, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// action are the fields of action.yml that GitHub uses.
type action struct {
	Inputs map[string]struct{ Default string }
	Runs   struct {
		Using string
		Steps []struct {
			Name, ID, If, Shell, Run string
			Env                      map[string]string
		}
	}
}

var (
	expression = regexp.MustCompile(`\$\{\{ *inputs\.([a-z-]+) *\}\}`)
	comparison = regexp.MustCompile(`^inputs\.([a-z-]+) *(==|!=) *'([^']*)'$`)
)

// shells are the command lines with which GitHub runs steps.
var shells = map[string][]string{"sh": {"sh", "-e"}, "bash": {"bash", "--noprofile", "--norc", "-eo", "pipefail"}}

// applies evaluates a step's condition.
func applies(t *testing.T, condition string, inputs map[string]string) bool {
	t.Helper()
	for part := range strings.SplitSeq(condition, "&&") {
		m := comparison.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			t.Fatalf("condition %q is more than this test understands", part)
		}
		if (inputs[m[1]] == m[3]) != (m[2] == "==") {
			return false
		}
	}
	return true
}

// use runs the action like GitHub's runner. It returns the environment for the steps after it.
func (l laptop) use(environ map[string]string, with map[string]string) map[string]string {
	l.t.Helper()
	var a action
	decode(l.t, "action.yml", &a)
	inputs := map[string]string{}
	for name, in := range a.Inputs {
		inputs[name] = in.Default
	}
	for name, value := range with {
		if _, ok := a.Inputs[name]; !ok {
			l.t.Fatalf("the action has no input %s", name)
		}
		inputs[name] = value
	}
	before := environ
	environ = map[string]string{}
	maps.Copy(environ, before)
	maps.Copy(environ, map[string]string{"GITHUB_ACTION_PATH": filepath.Dir(source(l.t, "action.yml")), "RUNNER_TEMP": "/srv/temp",
		"GITHUB_ENV": "/srv/temp/env", "GITHUB_OUTPUT": "/srv/temp/output", "CI": "true", "HOME": "/root"})
	for _, s := range a.Runs.Steps {
		if !applies(l.t, s.If, inputs) {
			continue
		}
		l.Run("sh", "-c", "mkdir -p /srv/temp && : > /srv/temp/env && : > /srv/temp/output")
		env := maps.Clone(environ)
		for name, value := range s.Env {
			env[name] = expression.ReplaceAllStringFunc(value, func(e string) string { return inputs[expression.FindStringSubmatch(e)[1]] })
		}
		l.script("step.sh", s.Run)
		out, err := l.job(env, append(shells[s.Shell], workspace+"/step.sh")...)
		l.t.Logf("%s: %s", s.Name, out)
		if err != nil {
			l.t.Fatalf("%s: %v", s.Name, err)
		}
		for line := range strings.Lines(l.Run("cat", "/srv/temp/env")) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			environ[name] = value
		}
	}
	return environ
}

// job runs a program in the workspace with an environment.
func (l laptop) job(env map[string]string, args ...string) (string, error) {
	line := []string{"-C", workspace, "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		line = append(line, name+"="+env[name])
	}
	out, err := l.Command("env", append(line, args...)...).CombinedOutput()
	return string(out), err
}

// TestAction runs the steps of the GitHub action.
func TestAction(t *testing.T) {
	slots.Take(t)
	l, _ := newLaptop(t)
	l.workspace()
	env := l.use(nil, map[string]string{"file": binary, "insecure-unsigned": "true", "nodes": "2", "images": "app.tar\n", "manifests": "deploy\n", "rollout": "true"})
	out, err := l.job(env, "./e2e.sh")
	if err != nil || out != "2" {
		now, _ := l.job(env, "kubectl", "get", "daemonsets,pods,nodes,events", "-o", "yaml")
		t.Errorf("a step after it: %v: %q; soon after:\n%s", err, out, now)
	}
	if out, err := l.job(env, "coracle", "images", "load", "/var/lib/coracle/images/busybox.tar"); err != nil || !strings.Contains(out, "into 2 nodes") {
		t.Errorf("loading an image: %v: %s", err, out)
	}
	l.use(env, map[string]string{"do": "down", "artifacts": "cluster"})
	for _, node := range []string{"server-1", "agent-1"} {
		log := l.Run("sh", "-c", "tar -xzOf "+workspace+"/cluster/*-"+node+".tar.gz | grep -ac 'coracle is ready'; true")
		if strings.TrimSpace(log) == "0" {
			t.Errorf("the bundle of %s lacks its log", node)
		}
	}
	if err := contains("pods", l.Run("cat", workspace+"/cluster/pods.txt"), "web-"); err != nil {
		t.Error(err)
	}
	if out := l.Run("sh", "-c", "ls -A /srv/clusters; ip -o link | grep cor-; ls /srv/temp; true"); strings.TrimSpace(out) != "env\noutput" {
		t.Errorf("left: %s", out)
	}
}

// TestGitLab runs the script lines of the GitLab job, with tests that pass and tests that fail.
func TestGitLab(t *testing.T) {
	slots.Take(t)
	l, _ := newLaptop(t)
	l.workspace()
	var jobs map[string]struct {
		Variables    map[string]string
		BeforeScript []string `yaml:"before_script"`
		Script       []string
		Artifacts    struct{ Paths []string }
	}
	decode(t, "docs/examples/gitlab-ci.yml", &jobs)
	env := maps.Clone(jobs[".coracle"].Variables)
	maps.Copy(env, map[string]string{"HOME": "/root", "CI": "true", "CORACLE_INSTALL_SCRIPT": source(t, "install.sh"), "INSTALL_CORACLE_FILE": binary, "INSTALL_CORACLE_INSECURE_UNSIGNED": "true"})
	lines := append(jobs[".coracle"].BeforeScript, jobs["e2e"].Script...)
	l.script("job.sh", "set -eo pipefail\n"+strings.Join(lines, "\n")+"\n")
	out, err := l.job(env, "bash", workspace+"/job.sh")
	if err != nil || !strings.Contains(out, "\n2coracle: ") {
		t.Errorf("%v: %s", err, out)
	}
	l.script("e2e.sh", "#!/bin/sh\nexit 9\n")
	l.Run("rm", "-rf", workspace+"/cluster")
	out, err = l.job(env, "bash", workspace+"/job.sh")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 9 {
		t.Errorf("tests that fail: %v: %s", err, out)
	}
	for _, path := range jobs["e2e"].Artifacts.Paths {
		kept := l.Run("sh", "-c", "cd "+workspace+"/"+path+" && find . -type f")
		for _, want := range []string{"./events.txt", "./pods-describe.txt", "./nodes/server-1/coracle.log", "./nodes/agent-1/status.txt", "/agnhost/0.log"} {
			if !strings.Contains(kept, want) {
				t.Errorf("the artifacts lack %s: %s", want, kept)
			}
		}
	}
	if err := l.gone(); err != nil {
		t.Error(err)
	}
}

// TestMakefile runs make with the include file, as a user with sudo.
func TestMakefile(t *testing.T) {
	slots.Take(t)
	l, _ := newLaptop(t)
	l.workspace()
	l.script("Makefile", "include "+source(t, "docs/examples/coracle.mk")+"\ne2e:\n\t./e2e.sh\n")
	env := map[string]string{"HOME": "/root"}
	target := func(args ...string) string {
		t.Helper()
		out, err := l.job(env, append([]string{"make", "--no-print-directory", "CORACLE=" + hosts.Bin(t)}, args...)...)
		if err != nil {
			t.Fatalf("make %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return out
	}
	if out := target("e2e-in-cluster", "CORACLE_RUN=--image app.tar --manifest deploy --rollout"); !strings.Contains(out, "./e2e.sh\n1") {
		t.Errorf("e2e-in-cluster: %s", out)
	}
	target("cluster", "CORACLE_NAME=made", "CORACLE_UP=--nodes 2")
	if out := target("cluster-images", "CORACLE_NAME=made", "CORACLE_IMAGES=app.tar"); !bytes.Contains([]byte(out), []byte("into 2 nodes")) {
		t.Errorf("cluster-images: %s", out)
	}
	target("cluster-down", "CORACLE_NAME=made")
	if err := l.gone(); err != nil {
		t.Error(err)
	}
}
