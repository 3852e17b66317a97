package faults

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/grpclog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"

	"github.com/coracle-dev/coracle/test/disks"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/verdicts"
)

func TestMain(m *testing.M) {
	transport.CertCallbackRefreshDuration = time.Second // clients notice at once that the administrator's certificate was renewed
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(devNull{}, devNull{}, devNull{}))
	os.Exit(hosts.Main(m))
}

// devNull discards the messages of gRPC about unreachable servers, which these tests cause.
type devNull struct{}

func (devNull) Write(p []byte) (int, error) { return len(p), nil }

// arena is a cluster that is broken repeatedly. The tests need the agent for its balancer, because the servers'
// balancers prefer their own API.
type arena struct {
	*hosts.Cluster
	t       *testing.T
	long    bool
	clients []*client
	gates   map[string]*gate
	direct  map[string]kubernetes.Interface // of every server's own API, by host
	args    map[string][]string             // further arguments at the next start, by host
	loads   int                             // the number of loads so far, for their names
	load    *load                           // the current load
	random  *rand.Rand                      // what faults choose
	broken  bool                            // the cluster may be unwell: the next run takes a new one
	disk    *disks.Disk                     // of the last server, in the long part
}

// diskMiB is the size of the last server's disk, which one of the faults fills.
const diskMiB = 1400

func newArena(t *testing.T, servers, agents int) *arena {
	var disk *disks.Disk
	if verdicts.Long() && servers > 1 {
		disk = disks.New(t, diskMiB)
	}
	limited := false
	a := newArenaOf(t, hosts.Plan{Servers: servers, Agents: agents}, func(h *hosts.Host) {
		if h.Name == fmt.Sprintf("server-%d", servers) && servers > 1 && !limited {
			limited = true
			if disk != nil {
				h.Insert(disk)
				return
			}
			h.LimitDisk(diskMiB)
		}
	})
	a.disk = disk
	return a
}

// newArenaOf makes the cluster of a plan; prepare is called for every host after each boot.
func newArenaOf(t *testing.T, plan hosts.Plan, prepare func(*hosts.Host)) *arena {
	a := &arena{t: t, gates: map[string]*gate{}, direct: map[string]kubernetes.Interface{}, args: map[string][]string{}}
	plan.Prepare = func(h *hosts.Host) []string {
		prepare(h)
		return a.args[h.Name]
	}
	a.Cluster = hosts.NewCluster(t, plan)
	for _, h := range a.Hosts() {
		a.gates[h.Name] = &gate{}
	}
	if !plan.Stopped {
		a.connect()
	}
	return a
}

// connect makes the clients.
func (a *arena) connect() {
	a.t.Helper()
	for _, h := range a.Hosts() {
		config, err := a.Config(h, hosts.Balancer)
		if err == nil {
			var c *client
			c, err = newClient(h.Name, config, a.gates[h.Name])
			a.clients = append(a.clients, c)
		}
		if err == nil {
			a.direct[h.Name], err = a.Client(h, hosts.OwnAPI)
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
	slices.Reverse(a.clients) // the agent's first
}

// plug unplugs a host's cable: the others get no packet from it, not even about the end of its connections.
func (a *arena) plug(h *hosts.Host) {
	a.Links.Isolate(h)
	a.kill(h)
}

// kill kills all processes on a host.
func (a *arena) kill(h *hosts.Host) {
	a.gates[h.Name].set(true)
	h.Kill()
	a.t.Logf("killed %s", h.Name)
}

// boot boots killed hosts and reconnects their cables.
func (a *arena) boot(all ...*hosts.Host) {
	a.Links.Heal()
	for _, h := range all {
		a.Boot(h)
		a.gates[h.Name].set(false)
	}
}

// end kills all hosts of a cluster that is not used any more.
func (a *arena) end() {
	for _, h := range a.Hosts() {
		a.kill(h)
	}
}

// leader returns the server whose member leads etcd, in a healthy cluster.
func (a *arena) leader() *hosts.Host {
	a.t.Helper()
	h, err := a.Leader()
	if err != nil {
		a.t.Fatal(err)
	}
	return h
}

// lead makes a server's member the leader of etcd.
func (a *arena) lead(h *hosts.Host) {
	a.t.Helper()
	hosts.Eventually(a.t, askTimeout, func() error {
		was, err := a.Leader()
		if was == h || err != nil {
			return err
		}
		_, id, err := a.Leads(h)
		if err == nil {
			err = a.Etcd(was, func(ctx context.Context, c *clientv3.Client, _ string) error {
				_, err := c.MoveLeader(ctx, id)
				return err
			})
		}
		if err != nil {
			return fmt.Errorf("making %s etcd's leader: %w", h.Name, err)
		}
		return nil
	})
}

// askTimeout limits a request to a healthy cluster, also on a slow machine.
const askTimeout = time.Minute

// others returns all servers except one.
func (a *arena) others(h *hosts.Host) []*hosts.Host {
	return slices.DeleteFunc(slices.Clone(a.Servers), func(o *hosts.Host) bool { return o == h })
}

// usedBy returns the server to which a host's balancer forwards. The certificate identifies it.
func (a *arena) usedBy(h *hosts.Host) *hosts.Host {
	a.t.Helper()
	var addresses []net.IP
	hosts.Eventually(a.t, askTimeout, func() (err error) {
		if addresses, err = behind(h); err != nil {
			return fmt.Errorf("asking who answers behind %s's balancer: %w", h.Name, err)
		}
		return nil
	})
	for _, s := range a.Servers {
		if slices.ContainsFunc(addresses, func(ip net.IP) bool { return ip.String() == s.IP.String() }) {
			return s
		}
	}
	a.t.Fatalf("a server with the addresses %v answers behind %s's balancer", addresses, h.Name)
	return nil
}

// behind returns the addresses in the certificate of the server behind a host's balancer.
func behind(h *hosts.Host) ([]net.IP, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	raw, err := h.Dial(ctx, "tcp", hosts.Balancer)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return conn.ConnectionState().PeerCertificates[0].IPAddresses, nil
}

// healed waits until the cluster is healthy, the given hosts have reported so after the given time, and it stays so for
// a moment. It returns the time when it became so.
func (a *arena) healed(since time.Time, hurt []*hosts.Host, timeout time.Duration) (when time.Time, err error) {
	last := ""
	defer func() {
		if last != "" {
			a.t.Logf("the last that was missing: %s", last)
		}
	}()
	for deadline := time.Now().Add(timeout); ; time.Sleep(200 * time.Millisecond) {
		err := a.Healthy(time.Time{}, 0)
		if err == nil {
			err = a.alive(since, hurt)
		}
		switch {
		case err != nil:
			when, last = time.Time{}, brief(err)
		case when.IsZero():
			when = time.Now()
		case time.Since(when) > quiet:
			return when, nil
		}
		if time.Now().After(deadline) {
			return when, err
		}
	}
}

// brief shortens an error by the checks of /readyz that passed.
func brief(err error) string {
	lines := strings.Split(err.Error(), "\n")
	kept := slices.DeleteFunc(lines[1:], func(line string) bool { return !strings.HasPrefix(line, "[-]") })
	first, _, _ := strings.Cut(lines[0], "[+]")
	return strings.Join(append([]string{first}, kept...), " ")
}

// alive returns an error if a host's kubelet has not renewed its lease since the given time.
func (a *arena) alive(since time.Time, all []*hosts.Host) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	for _, h := range all {
		lease, err := a.direct[a.Servers[0].Name].CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, h.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(since) {
			return fmt.Errorf("the kubelet of %s has not been heard of", h.Name)
		}
	}
	return nil
}

// views returns the load's objects as each server's own API shows them.
func (a *arena) views(l *load) (out []map[string]string) {
	a.t.Helper()
	for _, h := range a.Servers {
		out = append(out, l.view(a.t, h.Name, a.direct[h.Name]))
	}
	return out
}

// view returns the load's objects as a server shows them.
func (l *load) view(t *testing.T, server string, set kubernetes.Interface) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	list, err := set.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatalf("listing what is there after %s, at %s: %v", l.name, server, err)
	}
	view := map[string]string{}
	for _, item := range list.Items {
		if strings.HasPrefix(item.Name, l.name+"-") {
			view[item.Name] = item.Data[valueKey]
		}
	}
	return view
}
