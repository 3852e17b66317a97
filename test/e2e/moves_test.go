package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// move stops coracle on a host, gives the host another address, and starts coracle again.
func move(t *testing.T, c *hosts.Cluster, h *hosts.Host, to string) {
	t.Helper()
	if err := c.Running(h).Stop(); err != nil {
		t.Fatal(err)
	}
	h.SetIP(netip.MustParseAddr(to))
	c.Start(h)
}

// moveByCrash is move for a host that loses power, and has another address when it boots.
func moveByCrash(t *testing.T, c *hosts.Cluster, h *hosts.Host, to string) {
	t.Helper()
	h.Kill()
	h.Boot()
	h.SetIP(netip.MustParseAddr(to))
	c.Start(h)
}

// TestAddressChanges gives an agent, and one of three servers after another, new addresses, like DHCP.
func TestAddressChanges(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 3, Agents: 1, Images: true})
	api := c.Servers[0]
	api.Apply(manifest(t, "moves.yaml"))
	api.Kubectl("rollout", "status", "daemonset/web", "--timeout=3m")

	// The second server has not led yet; the first one led while the others joined.
	for _, m := range []struct {
		host *hosts.Host
		to   string
		move func(*testing.T, *hosts.Cluster, *hosts.Host, string)
	}{
		{c.Agents[0], "172.30.0.101", move},
		{c.Servers[1], "172.30.0.102", move},
		{c.Servers[0], "172.30.0.103", moveByCrash},
	} {
		t.Run(m.host.Name, func(t *testing.T) {
			since := time.Now()
			m.move(t, c, m.host, m.to)
			c.AwaitHealthy(since, 3*time.Minute)
			t.Logf("healthy %.1f s later", time.Since(since).Seconds())
			checkMoved(t, c, m.host)
		})
	}
}

// checkMoved checks the cluster from the moved host and from another one.
func checkMoved(t *testing.T, c *hosts.Cluster, moved *hosts.Host) {
	t.Helper()
	other := c.Servers[2]
	hosts.Eventually(t, 2*time.Minute, func() error {
		got, err := other.TryCoracle("kubectl", "get", "node", moved.Name, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
		if err != nil {
			return err
		}
		return contains("the node's address", got, moved.IP.String())
	})
	hosts.Eventually(t, 2*time.Minute, func() error { return serversAre(c, other) })
	for _, h := range c.Servers {
		hosts.Eventually(t, 2*time.Minute, func() error {
			members, err := h.TryCoracle("kubectl", "get", "--raw", "/coracle/v1/etcd/members")
			if err != nil {
				return err
			}
			for _, s := range c.Servers {
				if err := contains("etcd's members", members, "https://"+s.IP.String()+":2380"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	// Pods of the moved host and of another one reach each other, and the API reaches both.
	for _, pair := range [][2]*hosts.Host{{moved, other}, {other, moved}} {
		reaches(t, other, pair[0], pair[1])
	}
	// The agent's components can be reached through each server.
	c.Agents[0].Coracle("status")
}

// TestOnlyServerMoves gives the only server another address while its agents run. One agent uses a name and finds the
// server again by itself; the other one must be restarted with the new address.
func TestOnlyServerMoves(t *testing.T) {
	slots.Take(t)
	const name = "cluster.test"
	plan := hosts.Plan{Servers: 1, Agents: 2, Images: true}
	knows := func(h *hosts.Host, server netip.Addr) {
		h.Run("sh", "-c", fmt.Sprintf("echo 127.0.0.1 localhost > /etc/hosts; echo %s %s >> /etc/hosts", server, name))
	}
	plan.Prepare = func(h *hosts.Host) []string {
		knows(h, netip.MustParseAddr("172.30.0.2"))
		if strings.HasPrefix(h.Name, "server") {
			return []string{"--tls-san=" + name}
		}
		return nil
	}
	plan.Join = func(h *hosts.Host, first *hosts.Host) string {
		if h.Name == "agent-1" {
			return name
		}
		return first.IP.String()
	}
	c := hosts.NewCluster(t, plan)
	server, byName, byIP := c.Servers[0], c.Agents[0], c.Agents[1]
	server.Apply(manifest(t, "moves.yaml"))
	server.Kubectl("rollout", "status", "daemonset/web", "--timeout=3m")

	since := time.Now()
	move(t, c, server, "172.30.0.77")
	knows(byName, server.IP)
	hosts.Eventually(t, 3*time.Minute, func() error { return lives(c, server.Name, byName.Name)(since) })
	t.Logf("the agent that knows a name was back after %.1f s", time.Since(since).Seconds())
	if err := lives(c, byIP.Name)(since.Add(10 * time.Second)); err == nil {
		t.Error("the agent that knows an address only has found the server: say so in the docs")
	}
	if err := c.Running(byIP).Stop(); err != nil {
		t.Fatal(err)
	}
	c.Start(byIP)
	c.AwaitHealthy(since, 3*time.Minute)
	for _, pair := range [][2]*hosts.Host{{byName, byIP}, {byIP, byName}, {byName, server}} {
		reaches(t, server, pair[0], pair[1])
	}
}

// lives returns an error unless the nodes have reported their status after the given time.
func lives(c *hosts.Cluster, nodes ...string) func(since time.Time) error {
	return func(since time.Time) error {
		client, err := c.Client(c.Servers[0], hosts.OwnAPI)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for _, node := range nodes {
			l, err := client.CoordinationV1().Leases("kube-node-lease").Get(ctx, node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if l.Spec.RenewTime == nil || l.Spec.RenewTime.Before(&metav1.MicroTime{Time: since}) {
				return fmt.Errorf("%s was last heard of at %s", node, l.Spec.RenewTime)
			}
		}
		return nil
	}
}

// reaches waits until a host's pod gets an answer from another host's. Both pods may be recreated meanwhile.
func reaches(t *testing.T, api, on, other *hosts.Host) {
	t.Helper()
	hosts.Eventually(t, 3*time.Minute, func() error {
		from, err := pod(api, on)
		if err != nil {
			return err
		}
		to, err := pod(api, other)
		if err != nil {
			return err
		}
		_, err = api.TryCoracle("kubectl", "exec", from.name, "--", "busybox", "timeout", "3", "busybox", "wget", "-qO-", "http://"+to.ip+":8080/name")
		return err
	})
}

type podOn struct{ name, ip string }

func pod(api, on *hosts.Host) (podOn, error) {
	out, err := api.TryCoracle("kubectl", "get", "pods", "-l", "app=web", "--field-selector", "spec.nodeName="+on.Name,
		"-o", "jsonpath={.items[0].metadata.name} {.items[0].status.podIP}")
	name, ip, _ := strings.Cut(out, " ")
	return podOn{name, strings.TrimSpace(ip)}, err
}

// serversAre returns an error unless Service kubernetes has exactly the servers' addresses.
func serversAre(c *hosts.Cluster, api *hosts.Host) error {
	client, err := c.Client(api, hosts.OwnAPI)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	slice, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got, want := addresses(slice), ips(c.Servers); !slices.Equal(got, want) {
		return fmt.Errorf("Service kubernetes has %v, want %v", got, want)
	}
	return nil
}

func addresses(s *discoveryv1.EndpointSlice) (all []string) {
	for _, e := range s.Endpoints {
		all = append(all, e.Addresses...)
	}
	slices.Sort(all)
	return all
}

func ips(of []*hosts.Host) (all []string) {
	for _, h := range of {
		all = append(all, h.IP.String())
	}
	slices.Sort(all)
	return all
}
