package bench

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// measureRun makes and removes clusters for commands, and counts the traces that are left.
func measureRun(t *testing.T, wire *hosts.Wire, runs int, r *results) {
	h := hosts.New(t, wire, "runner", hosts.Options{})
	h.CopyImages()
	h.Coracle("kubectl", "version", "--client") // unpacks
	const dir = "/var/lib/coracle/clusters"
	run := func(args ...string) float64 {
		began := time.Now()
		h.Coracle(append([]string{"run", "-q", "--data-dir=" + dir}, args...)...)
		return time.Since(began).Seconds()
	}
	for range runs {
		r.add("coracle run -- true: the whole command", "s", 9, run("--", "true"))
		r.add("coracle run --nodes 3 -- true", "s", 0, run("--nodes=3", "--", "true"))
	}
	before := traces(h)
	left := func(how string) {
		r.add("coracle run leftovers after "+how, "", 0, float64(missing(traces(h), before)+missing(before, traces(h))))
	}
	run("--", "true")
	left("success")
	_, _ = h.TryCoracle("run", "-q", "--data-dir="+dir, "--", "false")
	left("failure")
	interrupted(t, h, dir, syscall.SIGINT, "run ")
	left("Ctrl-C")
	interrupted(t, h, dir, syscall.SIGKILL, "(run|__keep-cluster) ")
	run("--", "true")
	left("kill -9 and the next run")
	h.Kill()
}

// interrupted starts a run and sends it a signal when its command runs.
func interrupted(t *testing.T, h *hosts.Host, dir string, s syscall.Signal, which string) {
	t.Helper()
	const started = "/srv/started"
	cmd := h.Command(hosts.Bin(t), "run", "-q", "--data-dir="+dir, "--", "sh", "-c", "touch "+started+"; exec sleep 600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; <-time.After(20 * time.Millisecond) {
		if _, err := h.Try("rm", started); err == nil {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("the command of coracle run has not started within a minute")
		}
	}
	h.Run("pkill", fmt.Sprintf("-%d", s), "-f", "^"+hosts.Bin(t)+" "+which)
	_, _ = h.Try("pkill", "-fx", "sleep 600") // both of its parents may be gone
	_ = cmd.Wait()
}

// traces lists everything that clusters could leave on a machine, one line each.
func traces(h *hosts.Host) []string {
	return strings.Split(h.Run("sh", "-c", `
		ip -o link | sed 's/^[0-9]*: //; s/@.*//'
		ip -o addr | awk '{print $2, $4}'
		ip route; ip rule; nft list ruleset
		sed s/,uuid=on// /proc/mounts
		find /sys/fs/cgroup -type d
		ps -eo args | grep -E 'coracle|sleep 600' | grep -v grep
		find /root /tmp /run /etc /srv /var/lib/coracle/clusters -xdev -path /root/.cache -prune -o -print 2>/dev/null; true`), "\n")
}

// missing counts lines of a that are not in b, as often as a has them.
func missing(a, b []string) (n int) {
	has := map[string]int{}
	for _, line := range b {
		has[line]++
	}
	for _, line := range a {
		if has[line]--; has[line] < 0 {
			n++
		}
	}
	return n
}
