package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
)

// AwaitHealthy waits until the API of every server is ready, all servers are voting members of etcd, and all nodes are
// Ready and have reported it after the given time.
func (c *Cluster) AwaitHealthy(since time.Time, timeout time.Duration) {
	c.t.Helper()
	if err := c.Healthy(since, timeout); err != nil {
		c.t.Fatalf("the cluster is not healthy within %s: %v", timeout, err)
	}
}

// Healthy is AwaitHealthy that returns an error instead of failing the test. It returns early if coracle has ended on a
// host.
func (c *Cluster) Healthy(since time.Time, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		err := c.check(since)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if ended := c.ended(); ended != nil {
			return errors.Join(ended, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// ended is an error if coracle has ended on a host that is up.
func (c *Cluster) ended() error {
	for _, h := range c.Hosts() {
		s := c.Running(h)
		if s == nil || !h.vm.Up() {
			continue
		}
		select {
		case <-s.done:
			return fmt.Errorf("coracle has ended on %s: %w", h.Name, s.err)
		default:
		}
	}
	return nil
}

// check is an error if the cluster is not healthy now.
func (c *Cluster) check(since time.Time) error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	for _, h := range c.Servers {
		client, err := c.Client(h, OwnAPI)
		if err != nil {
			return err
		}
		if out, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
			return fmt.Errorf("%s: %w: %s", h.Name, err, out)
		}
	}
	client, err := c.Client(c.Servers[0], OwnAPI)
	if err != nil {
		return err
	}
	if err := c.checkMembers(ctx, client); err != nil {
		return err
	}
	return c.checkNodes(ctx, client, since)
}

// checkMembers is an error unless exactly the servers are voting members of etcd.
func (c *Cluster) checkMembers(ctx context.Context, client kubernetes.Interface) error {
	if c.plan.Servers < 2 {
		return nil
	}
	data, err := client.Discovery().RESTClient().Get().AbsPath(join.PathMembers).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("listing etcd's members: %w", err)
	}
	var members []join.Member
	if err := json.Unmarshal(data, &members); err != nil {
		return fmt.Errorf("listing etcd's members: %w", err)
	}
	var voters []string
	for _, m := range members {
		if !m.Learner {
			voters = append(voters, m.Name)
		}
	}
	if len(voters) != len(c.Servers) || len(members) != len(voters) {
		return fmt.Errorf("of etcd's %d members these vote: %v", len(members), voters)
	}
	return nil
}

// checkNodes is an error unless every host's node is Ready and alive.
func (c *Cluster) checkNodes(ctx context.Context, client kubernetes.Interface, since time.Time) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	alive := map[string]bool{}
	for _, l := range leases.Items {
		alive[l.Name] = l.Spec.RenewTime != nil && l.Spec.RenewTime.After(since)
	}
	good := map[string]bool{}
	for _, n := range nodes.Items {
		good[n.Name] = slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			// A kubelet that starts reports its status at once; it may renew its Lease ten seconds later.
			said := alive[n.Name] || c.LastHeartbeatTime.After(since)
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && said
		})
	}
	var missing []string
	for _, h := range c.Hosts() {
		if !good[h.Name] {
			missing = append(missing, h.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not Ready: %s", strings.Join(missing, ", "))
	}
	return nil
}
