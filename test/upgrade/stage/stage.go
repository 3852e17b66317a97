// Package stage prepares machines for tests of upgrades: an installed coracle, pods that serve, a client that counts
// failed requests, a newer version that works and a stand-in that does not.
package stage

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/machines"
)

// Paths on a machine.
const (
	Newer   = machines.Coracle + "/next/coracle" // a newer version, which works
	Standin = "/root/standin"                    // a version that does not work, once Bring has copied it
)

// Server is a machine with an installed coracle, a server or an agent.
type Server struct {
	*machines.Machine
	Version string // that was installed
}

// With is the server for a subtest.
func (s Server) With(t testing.TB) Server {
	s.Machine = s.For(t)
	return s
}

// Install boots a machine and installs coracle on it.
func Install(t testing.TB, site *machines.Site, name, role string, args ...string) Server {
	t.Helper()
	if _, err := os.Stat(hosts.Next(t)); err != nil {
		t.Skip("there is no other version to upgrade to: run `make test`, which has scripts/next make one")
	}
	return InstallFile(t, site, machines.Bin, name, role, args...)
}

// InstallFile is Install of an executable on the machine.
func InstallFile(t testing.TB, site *machines.Site, file, name, role string, args ...string) Server {
	t.Helper()
	s := Server{Machine: site.Boot(t, name, machines.Options{})}
	s.Run(file, append([]string{"install", "--", role}, args...)...)
	s.Version = s.Running()
	return s
}

// Bring copies the stand-in to the machine.
func (s Server) Bring(t testing.TB) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "standin")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, "github.com/coracle-dev/coracle/test/upgrade/stage/standin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	s.Write(Standin, string(data))
	s.Run("chmod", "755", Standin)
}

// Kubectl runs kubectl on the machine.
func (s Server) Kubectl(args ...string) string {
	return s.Run("coracle", append([]string{"kubectl"}, args...)...)
}

// Running is the running version.
func (s Server) Running() string {
	return s.Sh(`coracle status -o json | sed -n 's/^ *"version": "\(v[^"]*coracle[^"]*\)".*/\1/p' | head -n 1`)
}

// Containers has the start time of each container, from the kernel and containerd.
func (s Server) Containers() string {
	return s.Sh(`coracle crictl ps -q | sort | while read -r id; do
		coracle crictl inspect "$id" | sed -n 's/^ *"\(startedAt\|pid\)": /\1 /p' | tr '\n' ' '; echo; done
		coracle kubectl get pods -A -o 'jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[*].restartCount} {.status.containerStatuses[*].state.running.startedAt}{"\n"}{end}'`)
}

// Work creates pods that serve requests.
func (s Server) Work(t testing.TB) {
	t.Helper()
	s.Sh(`coracle images import /mnt/images/*.tar >/dev/null
		coracle kubectl create deployment web --image=registry.k8s.io/e2e-test-images/agnhost:2.66.1 --replicas=2 -- /agnhost netexec
		coracle kubectl expose deployment web --port=80 --target-port=8080
		coracle kubectl rollout status deployment web --timeout=300s`)
}

// AwaitPods waits until the pods of Work and Keep run again after the machine went down: what the API says of them may be of before.
func (s Server) AwaitPods(t testing.TB) {
	t.Helper()
	s.Sh(`until [ "$(coracle crictl ps -q --label io.kubernetes.container.name=agnhost | wc -l)" = 2 ]; do sleep 0.2; done
		service=$(coracle kubectl get service web -o 'jsonpath={.spec.clusterIP}')
		for n in 1 2 3 4 5 6 7 8 9 10; do until curl -sf "http://$service/hostname" >/dev/null; do sleep 0.2; done; done
		coracle kubectl wait pods -l app=web --for=condition=Ready --timeout=300s
		until id=$(coracle crictl ps -q --label io.kubernetes.container.name=keeper) && [ -n "$id" ] &&
			coracle kubectl get pod keeper -o 'jsonpath={.status.containerStatuses[0].containerID}' | grep -q "$id"; do sleep 0.2; done`)
}

// Missed counts the failed requests of a client.
type Missed map[string]struct {
	Asked, Failed int
	GapSeconds    float64
	Last          string
}

// Ask runs a client during a function.
func (s Server) Ask(t testing.TB, while func()) Missed {
	t.Helper()
	s.Sh(`pod=$(coracle kubectl get pods -l app=web -o 'jsonpath={.items[0].status.podIP}')
		service=$(coracle kubectl get service web -o 'jsonpath={.spec.clusterIP}')
		systemd-run --quiet --unit=client --property=StandardOutput=truncate:/root/client.json ` + Standin + ` client "$pod:8080" "$service:80" 127.0.0.1:6443`)
	while()
	s.Run("systemctl", "stop", "client")
	var m Missed
	if err := json.Unmarshal([]byte(s.Run("cat", "/root/client.json")), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// gapLimit is the longest time that pods may not answer. An upgrade leaves pods and the rules of Services alone, so that only a busy
// machine delays an answer: in 14 upgrades and roll-backs the longest delays were 0.2 to 2.1 s, the latter while 40 processes
// wanted two cores.
const gapLimit = 5.0 // seconds

// Check fails the test if requests to pods failed, or were answered late.
func (m Missed) Check(t testing.TB) {
	t.Helper()
	for _, problem := range m.problems() {
		t.Error(problem)
	}
	t.Logf("a pod's connection: %d requests, %d failed, %.2f s without an answer at most; its Service: %d, %d, %.2f s; API away for %.2f s",
		m["connection"].Asked, m["connection"].Failed, m["connection"].GapSeconds,
		m["service"].Asked, m["service"].Failed, m["service"].GapSeconds, m["api"].GapSeconds)
}

func (m Missed) problems() (out []string) {
	for _, what := range []string{"connection", "service"} {
		c := m[what]
		if c.Asked < 20 || c.Failed > 0 {
			out = append(out, fmt.Sprintf("of %d requests by a %s %d failed, last: %s", c.Asked, what, c.Failed, c.Last))
		}
		if c.GapSeconds > gapLimit {
			out = append(out, fmt.Sprintf("a %s had no answer for %.2f s, at most %.0f s are good", what, c.GapSeconds, gapLimit))
		}
	}
	return out
}

// State is coracle's record of the last upgrade.
func (s Server) State() (phase, failure string) {
	var st struct{ Phase, Error string }
	_ = json.Unmarshal([]byte(s.Run("cat", "/var/lib/coracle/upgrade/state.json")), &st)
	return st.Phase, st.Error
}

// AwaitPhase waits until the trial has reached a phase.
func (s Server) AwaitPhase(t testing.TB, want string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, _ := s.Try("cat", "/var/lib/coracle/upgrade/state.json")
		if strings.Contains(out, fmt.Sprintf("%q: %q", "phase", want)) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not %s within five minutes: %s", want, out)
		}
	}
}
