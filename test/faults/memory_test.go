package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// small is a machine with little memory: a kind of TestLittleMemory.
type small struct {
	kind   string
	bytes  int64
	steady int // pods that stay
	rolled int // pods that are replaced every few minutes

	arena    *arena
	host     *hosts.Host
	ready    *readiness // of a server
	problems []string
	peak     int64 // without files that the kernel can drop
	p99      time.Duration
}

// smallAPI is how long 99 of 100 questions to a server with little memory take at most.
const smallAPI = time.Second

// TestLittleMemory has an hour's work done on a server with 512 MB and 20 pods, on one with 1 GB and 110 pods, and on an agent of the first with 256 MB and 10 pods, the
// pods' own memory included: the kernel kills nothing for memory, the API answers, and the pods stay ready. It is the same hour for all.
func TestLittleMemory(t *testing.T) {
	skipUnlessLong(t)
	slots.Take(t)
	hosts.Bin(t)
	all := []*small{
		{kind: "512mb-server", bytes: 512 << 20, steady: 18, rolled: 2},
		{kind: "256mb-agent", bytes: 256 << 20, steady: 8, rolled: 2},
		{kind: "1gb-server", bytes: 1 << 30, steady: 108, rolled: 2},
	}
	kinds := []string{}
	for _, s := range all {
		kinds = append(kinds, s.kind)
	}
	c := verdicts.Class{Name: "endurance", Kinds: kinds, Long: 1}
	worked := false
	c.Each(t, func(sub *testing.T, kind string, _ uint64, row *verdicts.Row) {
		if !worked {
			worked = true
			workForAnHour(t, all[:2], all[2:])
		}
		s := all[slices.Index(kinds, kind)]
		for _, problem := range s.problems[:min(20, len(s.problems))] {
			sub.Error(problem)
		}
		row.Seen = fmt.Sprintf("%d pods, with at most %d MiB that could not be dropped", s.steady+s.rolled, s.peak>>20)
		if s.ready != nil {
			row.Gap = s.p99.Seconds()
			if s.p99 > smallAPI {
				sub.Errorf("99 of 100 answers of the API took up to %s", s.p99)
			}
		}
	})
}

// workForAnHour makes clusters of a server and, if there is a second machine, an agent, and looks after them for an hour.
func workForAnHour(t *testing.T, clusters ...[]*small) {
	all := slices.Concat(clusters...)
	for _, machines := range clusters {
		a := newArenaOf(t, hosts.Plan{Servers: 1, Agents: len(machines) - 1, Images: true, Options: hosts.Options{OwnPayload: true}}, func(h *hosts.Host) {
			if strings.HasPrefix(h.Name, "agent") {
				h.LimitMemory(machines[1].bytes)
			} else {
				h.LimitMemory(machines[0].bytes)
			}
		})
		for i, s := range machines {
			s.arena, s.host = a, a.Hosts()[i]
			for name, n := range map[string]int{"steady": s.steady, "rolled": s.rolled} {
				a.Servers[0].Apply(fmt.Sprintf(web, name+"-"+s.host.Name, n, s.host.Name))
			}
		}
	}
	for _, s := range all {
		for _, name := range []string{"steady", "rolled"} {
			s.arena.Servers[0].Kubectl("rollout", "status", "--timeout=5m", "deployment/"+name+"-"+s.host.Name)
		}
	}
	for _, machines := range clusters {
		machines[0].ready = machines[0].arena.watchReady(machines[0].host)
	}
	turn := time.NewTicker(oneTurn)
	defer turn.Stop()
	for began, n := time.Now(), 1; time.Since(began) < anHour; n++ {
		<-turn.C
		for _, s := range all {
			s.look()
			s.work(n)
			t.Logf("after %s: %s uses %d MiB", time.Since(began).Round(time.Second), s.kind, s.host.Memory()>>20)
		}
	}
	for _, machines := range clusters {
		var text string
		machines[0].p99, text = machines[0].ready.end(nil)
		t.Logf("%s:\n%s", machines[0].kind, text)
	}
}

// web is a Deployment of pods that serve a page, and are ready while it is served: name, replicas, node.
const web = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s}, spec: {replicas: %[2]d, selector: {matchLabels: {app: %[1]s}},
	strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}},
	template: {metadata: {labels: {app: %[1]s}}, spec: {terminationGracePeriodSeconds: 0, nodeSelector: {kubernetes.io/hostname: %[3]s}, containers: [{
		name: web, image: "coracle.test/busybox:1", readinessProbe: {httpGet: {port: 8080, path: /page}},
		command: [sh, -c, "mkdir /www && echo page >/www/page && echo started && exec busybox httpd -f -p 8080 -h /www"]}]}}}}`

func (s *small) problem(format string, args ...any) {
	s.problems = append(s.problems, time.Now().UTC().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// look notes what must not be on the machine.
func (s *small) look() {
	a := s.arena
	s.peak = max(s.peak, s.host.Memory())
	if n := s.host.OOMKills(); n > 0 {
		s.problem("the kernel has killed %d processes for memory", n)
	}
	if n := a.Running(s.host).Restarts(); n > 0 {
		s.problem("child processes were restarted %d times", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	api := a.direct[a.Servers[0].Name]
	pods, err := api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=steady-" + s.host.Name})
	if err != nil {
		s.problem("the API does not answer: %v", err)
		return
	}
	ready := 0
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount > 0 || p.Status.Phase != corev1.PodRunning {
				s.problem("%s is %s, and was restarted %d times", p.Name, p.Status.Phase, c.RestartCount)
			}
			if c.Ready {
				ready++
			}
		}
	}
	if ready != s.steady || len(pods.Items) != s.steady {
		s.problem("%d of %d pods are ready, of %d that should be", ready, len(pods.Items), s.steady)
	}
}

// work is what people do: each turn they look at something on the server, and each tenth one replaces pods.
func (s *small) work(turn int) {
	server := s.arena.Servers[0]
	steady, rolled := "deployment/steady-"+s.host.Name, "deployment/rolled-"+s.host.Name
	commands := [][]string{{"get", "pods", "--all-namespaces"}, {"logs", steady}, {"exec", steady, "--", "cat", "/www/page"}}
	command := commands[turn%len(commands)]
	if turn%10 == 0 {
		command = []string{"rollout", "restart", rolled}
	}
	if out, err := server.TryCoracle(append([]string{"kubectl"}, command...)...); err != nil || out == "" {
		s.problem("kubectl %v: %v, %q", command, err, out)
	}
	if turn%10 == 0 {
		if _, err := server.TryCoracle("kubectl", "rollout", "status", "--timeout=1m", rolled); err != nil {
			s.problem("%s: %v", rolled, err)
		}
	}
}
