package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/localcluster"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// runOutcome is the result of a coracle run.
type runOutcome struct {
	code           int
	stdout, stderr string
}

// in is the laptop for a subtest.
func (l laptop) in(t *testing.T) laptop { return laptop{l.For(t), t} }

// runCluster runs coracle run to its end.
func (l laptop) runCluster(stdin string, args ...string) runOutcome {
	l.t.Helper()
	cmd := l.Command(binary, append([]string{"run"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	return l.outcome(cmd.Run(), &stdout, &stderr)
}

func (l laptop) outcome(err error, stdout, stderr fmt.Stringer) runOutcome {
	l.t.Helper()
	o := runOutcome{stdout: stdout.String(), stderr: stderr.String()}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		o.code = exit.ExitCode()
	} else if err != nil {
		l.t.Fatal(err)
	}
	l.t.Logf("exit code %d: %s", o.code, tail(o.stderr, 12))
	return o
}

// want fails the test unless a run had this result.
func (o runOutcome) want(t *testing.T, code int, stdout string) {
	t.Helper()
	if o.code != code {
		t.Errorf("exit code %d, want %d", o.code, code)
	}
	if o.stdout != stdout {
		t.Errorf("standard output %q, want %q", o.stdout, stdout)
	}
}

// A custom resource and its definition. The resource's file is the first by name.
const (
	widget = `apiVersion: example.org/v1
kind: Widget
metadata: {name: one}
`
	widgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`
)

// ownNetwork brings a network plug-in as installers of networks do, by a pod that writes its configuration, and a Deployment that needs the network.
const ownNetwork = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: own-network}
spec:
  selector: {matchLabels: {app: own-network}}
  template:
    metadata: {labels: {app: own-network}}
    spec:
      hostNetwork: true
      terminationGracePeriodSeconds: 0
      tolerations: [{operator: Exists}]
      volumes: [{name: conf, hostPath: {path: /etc/cni/net.d}}]
      containers:
      - name: main
        image: coracle.test/busybox:1
        volumeMounts: [{name: conf, mountPath: /conf}]
        command:
        - sh
        - -c
        - |
          echo '{"cniVersion": "1.1.0", "name": "own", "plugins": [{"type": "bridge", "bridge": "own0", "isGateway": true, "ipam": {"type": "host-local",
            "ranges": [[{"subnet": "10.77.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}' > /conf/10-own.conflist
          exec sleep infinity
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: coracle.test/busybox:1, command: [sleep, infinity]}]
`

// TestRun runs commands with a cluster each and checks that nothing is left of it.
func TestRun(t *testing.T) {
	slots.Take(t)
	l, _ := newLaptop(t)
	l.Run("sh", "-c", "mkdir -m 700 /root/.kube; cat > /root/.kube/config <<'EOF'\n"+userConfig+"EOF\nchmod 600 /root/.kube/config")
	before := l.state()
	t.Run("success", func(t *testing.T) {
		l := l.in(t)
		script := `cat; kubectl get nodes -o name | wc -l; kubectl --kubeconfig /root/.kube/config config current-context`
		l.runCluster("typed\n", "--nodes", "2", "--", "sh", "-c", script).want(t, 0, "typed\n2\nwork\n")
		l.compare(before)
	})
	t.Run("failure", func(t *testing.T) {
		l := l.in(t)
		l.runCluster("", "-q", "--", "sh", "-c", "exit 7").want(t, 7, "")
		l.compare(before)
	})
	t.Run("killed by a signal", func(t *testing.T) {
		l := l.in(t)
		l.runCluster("", "-q", "--", "sh", "-c", "kill -9 $$").want(t, 128+9, "")
		l.compare(before)
	})
	t.Run("parallel", func(t *testing.T) {
		l := l.in(t)
		var runs [2]runOutcome
		done := make(chan int)
		for i := range runs {
			go func() {
				runs[i] = l.runCluster("", "-q", "--", "sh", "-c", "kubectl create configmap same && kubectl get nodes -o name")
				done <- i
			}()
		}
		for range runs {
			<-done
		}
		if runs[0].code != 0 || runs[1].code != 0 || runs[0].stdout == runs[1].stdout {
			t.Errorf("two at a time: %q and %q", runs[0].stdout, runs[1].stdout)
		}
		l.compare(before)
	})
	t.Run("for who called sudo", func(t *testing.T) {
		l := l.in(t)
		l.Run("sh", "-c", "echo dev:x:1234:1234::/home/dev:/bin/sh >> /etc/passwd; mkdir -p /home/dev; chown 1234:1234 /home/dev")
		before := l.state()
		script := `id -u; echo $HOME; kubectl get nodes -o name | wc -l; (kubectl create secret generic key --from-literal=word=correct-horse-7
			kubectl create configmap mine --from-literal=note=with-correct-horse-7 --from-literal=other=kept) >&2`
		out, err := l.Command("env", "SUDO_UID=1234", "SUDO_GID=1234", "SUDO_USER=dev", binary, "run", "-q", "--artifacts", "/home/dev/out",
			"--", "sh", "-c", script).Output()
		if want := "1234\n/home/dev\n1\n"; err != nil || string(out) != want {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
		if found := l.Run("sh", "-c", "grep -rl correct-horse-7 /home/dev/out; grep -rl 'other: kept' /home/dev/out"); found != "/home/dev/out/objects.yaml\n" {
			t.Errorf("the value of a Secret, and then what is not secret, are in %s", found)
		}
		if owners := l.Run("sh", "-c", "find /home/dev -printf '%U\\n' | sort -u; rm -r /home/dev/out; ls -A /home/dev"); owners != "1234\n" {
			t.Errorf("files in the user's home belong to, and what is left there: %s", owners)
		}
		l.compare(before)
		l.Run("sed", "-i", "/^dev:/d", "/etc/passwd")
	})
	t.Run("no cluster", func(t *testing.T) {
		l := l.in(t)
		// A kubelet that does not register its node: no machine is so quick that it is Ready in time, and none so slow that it has no log yet.
		l.Run("sh", "-c", `mkdir -p /srv/none/kubelet && cd /srv/none && echo 'kubelet-config-dir: kubelet' > coracle.yaml &&
			printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nregisterNode: false\n' > kubelet/10-none.conf`)
		if o := l.runCluster("", "--config", "/srv/none/coracle.yaml", "--wait", "10s", "--artifacts", "/srv/out", "true"); o.code != 125 || !strings.Contains(o.stderr, "not Ready within 10s: ") ||
			!strings.Contains(o.stderr, "logs of the nodes are in /srv/out/nodes") {
			t.Errorf("exit code %d: %s", o.code, o.stderr)
		}
		l.Run("sh", "-c", "ls /srv/out/nodes/run-*-server-1.log && rm -r /srv/out /srv/none")
		l.compare(before)
	})
	t.Run("manifests", func(t *testing.T) {
		l := l.in(t)
		l.Run("sh", "-c", "mkdir -p /srv/deploy/below && cat > /srv/deploy/a.yaml <<'EOF'\n"+widget+"EOF\ncat > /srv/deploy/below/b.yaml <<'EOF'\n"+widgets+"EOF")
		l.runCluster("", "-q", "--manifest", "/srv/deploy", "--rollout", "--", "kubectl", "get", "widgets", "-o", "name").
			want(t, 0, "widget.example.org/one\n")
		l.Run("sh", "-c", "echo 'kind: Nonsense' > /srv/deploy/a.yaml")
		if o := l.runCluster("", "-q", "--manifest", "/srv/deploy", "--", "true"); o.code != 125 || !strings.Contains(o.stderr, "applying /srv/deploy: ") {
			t.Errorf("exit code %d for a manifest that is wrong", o.code)
		}
		l.Run("rm", "-r", "/srv/deploy")
		l.compare(before)
	})
	t.Run("a network that a manifest brings", func(t *testing.T) {
		l := l.in(t)
		l.Run("sh", "-c", "mkdir -p /srv/own && cat > /srv/own/network.yaml <<'EOF'\n"+ownNetwork+"EOF\n"+
			`cd /srv/own && echo 'flannel-backend: none' > coracle.yaml && echo 'kubelet-config-dir: kubelet' >> coracle.yaml && mkdir kubelet &&
			printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 42\n' > kubelet/10-pods.conf`)
		l.runCluster("", "--config", "/srv/own/coracle.yaml", "--image", "/var/lib/coracle/images/busybox.tar", "--manifest", "/srv/own/network.yaml", "--rollout", "--",
			"kubectl", "get", "node", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status} {.items[*].status.capacity.pods}`).want(t, 0, "True 42")
		l.Run("rm", "-r", "/srv/own")
		l.compare(before)
	})
	for _, m := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no such command", []string{"--", "there-is-none"}, 127, "executable file not found"},
		{"no program", []string{"--", "/etc/passwd"}, 126, "permission denied"},
		{"no command", nil, 125, "say what to run"},
		{"no such manifest", []string{"--manifest", "/none", "true"}, 125, "--manifest: "},
	} {
		t.Run(m.name, func(t *testing.T) {
			l := l.in(t)
			o := l.runCluster("", m.args...)
			if o.code != m.code || !strings.Contains(o.stderr, m.want) {
				t.Errorf("exit code %d, want %d and %q", o.code, m.code, m.want)
			}
			l.compare(before)
		})
	}
}

// running is a coracle run whose command has started.
type running struct {
	laptop
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

// started is the file that the commands of these tests create when they run.
const started = "/srv/started"

// start begins a run and waits until its command runs.
func (l laptop) startRun(args ...string) *running {
	l.t.Helper()
	l.Run("rm", "-f", started)
	r := &running{laptop: l, cmd: l.Command(binary, append([]string{"run"}, args...)...)}
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.WaitDelay = &r.stdout, &r.stderr, 20*time.Second
	if err := r.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	r.awaitCommand()
	return r
}

func (l laptop) awaitCommand() {
	l.t.Helper()
	hosts.Eventually(l.t, 2*time.Minute, func() error {
		_, err := l.Try("test", "-e", started)
		return err
	})
	l.Run("rm", started)
}

func (r *running) end() runOutcome {
	r.t.Helper()
	return r.outcome(r.cmd.Wait(), &r.stdout, &r.stderr)
}

// signal sends a signal to the coracle run itself.
func (l laptop) signal(s syscall.Signal) {
	l.Run("pkill", fmt.Sprintf("-%d", s), "-f", "^"+binary+" run ")
}

// TestRunEndsEarly ends runs from outside in several ways and checks that nothing is left.
func TestRunEndsEarly(t *testing.T) {
	slots.Take(t)
	l, _ := newLaptop(t)
	before := l.state()
	const slow = "touch " + started + "; sleep 600 & wait $!"
	t.Run("SIGINT goes to the command", func(t *testing.T) {
		l := l.in(t)
		r := l.startRun("--", "bash", "-c", "trap 'echo asked; exit 5' INT; "+slow)
		l.signal(syscall.SIGINT)
		r.end().want(t, 5, "asked\n")
		l.compare(before)
	})
	t.Run("a second SIGINT ends it", func(t *testing.T) {
		l := l.in(t)
		touch := "touch " + started
		r := l.startRun("--", "bash", "-c", "trap 'echo asked; "+touch+"' INT; "+touch+"; while :; do sleep 0.1; done")
		l.signal(syscall.SIGINT)
		r.awaitCommand()
		time.Sleep(time.Second) // a second signal right after the first would be taken for the same one
		again := time.Now()
		l.signal(syscall.SIGINT)
		r.end().want(t, 128+9, "asked\n")
		if took := time.Since(again); took > 20*time.Second { // it would be killed 30 s after the first signal
			t.Errorf("it ended %s after the second one", took)
		}
		l.compare(before)
	})
	for name, s := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			l := l.in(t)
			r := l.startRun("--", "sh", "-c", slow)
			l.signal(s)
			r.end().want(t, 128+int(s), "")
			l.compare(before)
		})
	}
	t.Run("SIGINT before the command runs", func(t *testing.T) {
		l := l.in(t)
		cmd := l.Command(binary, "run", "-q", "true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		hosts.Eventually(t, time.Minute, func() error { return contains("nodes", l.Run("ps", "-eo", "args"), "coracle server") })
		l.signal(syscall.SIGINT)
		var none bytes.Buffer
		l.outcome(cmd.Wait(), &none, &none).want(t, 130, "")
		l.compare(before)
	})
	t.Run("killed", func(t *testing.T) {
		l := l.in(t)
		r := l.startRun("--", "sh", "-c", slow)
		l.signal(syscall.SIGKILL)
		r.end().want(t, 128+9, "")
		hosts.Eventually(t, time.Minute, func() error { return l.gone() })
		l.compare(before)
	})
	t.Run("killed with its holder", func(t *testing.T) {
		l := l.in(t)
		r := l.startRun("--", "sh", "-c", "touch "+started+"; exec sleep 601")
		// The holder is stopped before both are killed: it would end the command when its run dies.
		for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			l.Run("pkill", fmt.Sprintf("-%d", s), "-f", "^"+binary+" (run|__keep-cluster) ")
		}
		// No process is left that could end the command, which may not have executed sleep yet.
		l.Run("timeout", "60", "sh", "-c", "until pkill -fx 'sleep 601'; do sleep 0.05; done")
		r.end().want(t, 128+9, "")
		l.runCluster("", "-q", "true").want(t, 0, "")
		l.compare(before)
	})
	t.Run("Ctrl-C and Ctrl-Z on a terminal", func(t *testing.T) { l.in(t).onTerminal(t, before) })
}

// gone returns an error that lists the rest of runs.
func (l laptop) gone() error {
	out, err := l.Try("sh", "-c", "ls -A "+localcluster.DefaultDir+"; ls -d /tmp/coracle-* 2>/dev/null; pgrep -f [_]_keep-cluster; true")
	if err == nil && out != "" {
		err = fmt.Errorf("left: %s", out)
	}
	return err
}

// onTerminal runs a command from a shell with job control, on a terminal of its own.
func (l laptop) onTerminal(t *testing.T, before string) {
	inner := `trap 'echo asked; exit 3' INT; while :; do touch ` + started + `; sleep 0.1; done`
	shell := `set -m; ` + binary + ` run -q -- bash -c "` + inner + `"; echo stopped with $?; fg >/dev/null; echo ended with $?`
	cmd := l.Command("script", "-qec", "bash -c '"+strings.ReplaceAll(shell, "'", `'\''`)+"'", "/dev/null")
	typed, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out hosts.Output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	press := func(key string) {
		t.Helper()
		if _, err := typed.Write([]byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitCommand()
	press("\x1a")
	hosts.Eventually(t, time.Minute, func() error { return contains("the terminal", out.String(), "stopped with ") })
	l.Run("rm", "-f", started)
	l.awaitCommand() // it continues
	press("\x03")
	_ = cmd.Wait()
	for _, want := range []string{"stopped with 148", "asked", "ended with 3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the terminal does not show %q: %s", want, out.String())
		}
	}
	l.Run("rm", "-f", started)
	l.compare(before)
}
