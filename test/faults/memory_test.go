package faults

import (
	"context"
	"fmt"
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

	host     *hosts.Host
	problems []string
	peak     int64 // without files that the kernel can drop
}

// TestLittleMemory has an hour's work done on a server with 1 GB and 20 pods, and on an agent with 512 MB: the kernel kills nothing for memory, the API answers, and the
// pods stay ready. Both are in one cluster, for the same hour.
func TestLittleMemory(t *testing.T) {
	skipUnlessLong(t)
	slots.Take(t)
	hosts.Bin(t)
	all := map[string]*small{}
	c := verdicts.Class{Name: "endurance", Kinds: []string{"1gb-server", "512mb-agent"}, Long: 1}
	c.Each(t, func(sub *testing.T, kind string, _ uint64, row *verdicts.Row) {
		if len(all) == 0 {
			for _, s := range littleMemory(t) {
				all[s.kind] = s
			}
		}
		s := all[kind]
		for _, problem := range s.problems[:min(20, len(s.problems))] {
			sub.Error(problem)
		}
		row.Seen = fmt.Sprintf("with at most %d MiB that could not be dropped", s.peak>>20)
	})
}

// littleMemory makes the cluster, and looks after it for an hour.
func littleMemory(t *testing.T) []*small {
	server := &small{kind: "1gb-server", bytes: 1 << 30, steady: 18, rolled: 2}
	agent := &small{kind: "512mb-agent", bytes: 512 << 20, steady: 4, rolled: 1}
	a := newArenaOf(t, hosts.Plan{Servers: 1, Agents: 1, Images: true, Options: hosts.Options{OwnPayload: true}}, func(h *hosts.Host) {
		if strings.HasPrefix(h.Name, "agent") {
			h.LimitMemory(agent.bytes)
		} else {
			h.LimitMemory(server.bytes)
		}
	})
	server.host, agent.host = a.Servers[0], a.Agents[0]
	all := []*small{server, agent}
	for _, s := range all {
		for name, n := range map[string]int{"steady": s.steady, "rolled": s.rolled} {
			a.Servers[0].Apply(fmt.Sprintf(web, name+"-"+s.host.Name, n, s.host.Name))
		}
	}
	for _, s := range all {
		for _, name := range []string{"steady", "rolled"} {
			a.Servers[0].Kubectl("rollout", "status", "--timeout=5m", "deployment/"+name+"-"+s.host.Name)
		}
	}
	turn := time.NewTicker(oneTurn)
	defer turn.Stop()
	for began, n := time.Now(), 1; time.Since(began) < anHour; n++ {
		<-turn.C
		for _, s := range all {
			s.look(a)
			s.work(a.Servers[0], n)
			t.Logf("after %s: %s uses %d MiB", time.Since(began).Round(time.Second), s.kind, s.host.Memory()>>20)
		}
	}
	return all
}

// web is a Deployment of pods that serve a page, and are ready while it is served: name, replicas, node.
const web = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s}, spec: {replicas: %[2]d, selector: {matchLabels: {app: %[1]s}},
	template: {metadata: {labels: {app: %[1]s}}, spec: {terminationGracePeriodSeconds: 0, nodeSelector: {kubernetes.io/hostname: %[3]s}, containers: [{
		name: web, image: "coracle.test/busybox:1", readinessProbe: {httpGet: {port: 8080, path: /page}},
		command: [sh, -c, "mkdir /www && echo page >/www/page && echo started && exec busybox httpd -f -p 8080 -h /www"]}]}}}}`

func (s *small) problem(format string, args ...any) {
	s.problems = append(s.problems, time.Now().UTC().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// look notes what must not be on the machine.
func (s *small) look(a *arena) {
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
func (s *small) work(server *hosts.Host, turn int) {
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
