package e2e

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// idle is a Deployment of one idle pod.
const idle = `apiVersion: apps/v1
kind: Deployment
metadata: {name: idle}
spec:
  selector: {matchLabels: {app: idle}}
  template:
    metadata: {labels: {app: idle}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: idle, image: "IMAGE"}]
`

// TestDeadNode: the pods of a dead node are replaced elsewhere after the configured time.
func TestDeadNode(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1, Agents: 1, ServerArgs: []string{"--pod-eviction-timeout=5s"}})
	server, agent := c.Servers[0], c.Agents[0]
	client, err := c.Client(server, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	// runsOn waits until the pod runs on the node.
	runsOn := func(node string, timeout time.Duration) *corev1.Pod {
		t.Helper()
		for end := time.Now().Add(timeout); ; time.Sleep(200 * time.Millisecond) {
			pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=idle"})
			if err != nil {
				t.Fatal(err)
			}
			for i := range pods.Items {
				if p := &pods.Items[i]; p.Spec.NodeName == node && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
					return p
				}
			}
			if time.Now().After(end) {
				t.Fatalf("no pod runs on %s after %s", node, timeout)
			}
		}
	}
	server.Coracle("kubectl", "cordon", server.Name)
	server.Apply(strings.Replace(idle, "IMAGE", version.PauseImage, 1))
	pod := runsOn(agent.Name, 120*time.Second)
	for _, tol := range pod.Spec.Tolerations {
		if tol.TolerationSeconds == nil || *tol.TolerationSeconds != 5 {
			t.Errorf("it tolerates %+v", tol)
		}
	}
	server.Coracle("kubectl", "uncordon", server.Name)
	agent.Kill()
	began := time.Now()
	runsOn(server.Name, 120*time.Second)
	took := time.Since(began)
	t.Logf("the pod ran elsewhere %.0f s after its machine had died", took.Seconds())
	if took > 80*time.Second {
		t.Errorf("it took %s", took)
	}
}
