// Package upgrade upgrades installed coracles on whole machines, to versions that work and to some that do not.
package upgrade

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

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

const (
	installed = "v1.37.1+coracle.1"
	newer     = machines.Coracle + "/next/coracle"
	standin   = "/root/standin"
)

// server is a machine with an installed server.
type server struct{ *machines.Machine }

func (s server) with(t testing.TB) server { return server{s.For(t)} }

// install boots a machine and installs coracle on it.
func install(t testing.TB, site *machines.Site, name, role string, args ...string) server {
	t.Helper()
	if _, err := os.Stat(filepath.Join(filepath.Dir(hosts.Bin(t)), "next", "coracle")); err != nil {
		t.Skip("there is no other version to upgrade to: run `make test`, which has scripts/next make one")
	}
	s := server{site.Boot(t, name, machines.Options{})}
	s.Run(machines.Bin, append([]string{"install", "--", role}, args...)...)
	return s
}

// bring puts the stand-in onto the machine.
func (s server) bring(t testing.TB) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "standin")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, "./standin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	s.Write(standin, string(data))
	s.Run("chmod", "755", standin)
}

func (s server) kubectl(args ...string) string {
	return s.Run("coracle", append([]string{"kubectl"}, args...)...)
}

// version is that of the service that runs.
func (s server) version() string {
	return s.Sh(`coracle status -o json | sed -n 's/^ *"version": "\(v[^"]*coracle[^"]*\)".*/\1/p' | head -n 1`)
}

// containers are when each container began, as the kernel and containerd know it.
func (s server) containers() string {
	return s.Sh(`coracle crictl ps -q | sort | while read -r id; do
		coracle crictl inspect "$id" | sed -n 's/^ *"\(startedAt\|pid\)": /\1 /p' | tr '\n' ' '; done
		coracle kubectl get pods -A -o 'jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[*].restartCount} {.status.containerStatuses[*].state.running.startedAt}{"\n"}{end}'`)
}

// work is a pod that serves, and a client that counts what it misses.
func (s server) work(t testing.TB) {
	t.Helper()
	s.Sh(`coracle images import /mnt/images/*.tar >/dev/null
		coracle kubectl create deployment web --image=registry.k8s.io/e2e-test-images/agnhost:2.66.1 --replicas=2 -- /agnhost netexec
		coracle kubectl expose deployment web --port=80 --target-port=8080
		coracle kubectl rollout status deployment web --timeout=60s`)
}

// missed is what a client found.
type missed map[string]struct {
	Asked, Failed int
	GapSeconds    float64
	Last          string
}

// ask runs a client while something happens.
func (s server) ask(t testing.TB, while func()) missed {
	t.Helper()
	s.Sh(`pod=$(coracle kubectl get pods -l app=web -o 'jsonpath={.items[0].status.podIP}')
		service=$(coracle kubectl get service web -o 'jsonpath={.spec.clusterIP}')
		systemd-run --quiet --unit=client --property=StandardOutput=truncate:/root/client.json ` + standin + ` client "$pod:8080" "$service:80" 127.0.0.1:6443`)
	while()
	s.Run("systemctl", "stop", "client")
	var m missed
	if err := json.Unmarshal([]byte(s.Run("cat", "/root/client.json")), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// check fails the test if pods were not reached all the time.
func (m missed) check(t testing.TB) {
	t.Helper()
	for _, what := range []string{"connection", "service"} {
		if c := m[what]; c.Asked < 20 || c.Failed > 0 {
			t.Errorf("of %d requests by a %s %d failed, last: %s", c.Asked, what, c.Failed, c.Last)
		}
	}
	t.Logf("a pod's connection: %d requests, %d failed; its Service: %d, %d; API away for %.2f s", m["connection"].Asked, m["connection"].Failed,
		m["service"].Asked, m["service"].Failed, m["api"].GapSeconds)
}

// state is what coracle remembers of the last upgrade.
func (s server) state() (phase, failure string) {
	var st struct{ Phase, Error string }
	_ = json.Unmarshal([]byte(s.Run("cat", "/var/lib/coracle/upgrade/state.json")), &st)
	return st.Phase, st.Error
}

// awaitPhase waits until the trial is so far.
func (s server) awaitPhase(t testing.TB, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, _ := s.Try("cat", "/var/lib/coracle/upgrade/state.json")
		if strings.Contains(out, fmt.Sprintf("%q: %q", "phase", want)) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not %s within a minute: %s", want, out)
		}
	}
}
