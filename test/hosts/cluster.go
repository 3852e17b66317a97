package hosts

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Plan describes a cluster. Its hosts are named server-1, server-2, agent-1 and so on.
type Plan struct {
	Servers, Agents int
	Net             netip.Prefix // of the wire; the zero value is 172.30.0.0/24
	ServerArgs      []string     // further arguments of the first server; the others take the cluster's settings from it
	Images          bool         // puts the test images on every host
	Options         Options      // of every host
	Clocks          bool         // the hosts' clocks may differ from this machine's
	// Service installs coracle as a service, which is started again whenever it ends. Its executable and the programs of its payload
	// are on the host's own disk.
	Service bool
	// Stopped leaves the start of coracle to the caller.
	Stopped bool
	// Join returns the name or address of the first server that a host joins. Nil means its current IP address.
	Join func(h, first *Host) string
	// Prepare is called for every host after each boot, before coracle starts, and returns further arguments for it.
	Prepare func(*Host) []string
}

// Cluster is coracle that runs on several hosts.
type Cluster struct {
	Wire            *Wire
	Links           *Links
	Servers, Agents []*Host

	t          testing.TB
	plan       Plan
	kubeconfig []byte // the administrator's

	mu      sync.Mutex
	args    map[string][]string // by host: what Prepare returned
	running map[string]*Server  // by host
}

// token is the same on all hosts, as provisioning tools do it.
const token, tokenFile = "the-same-everywhere", "/etc/coracle/token"

// NewCluster makes the hosts and starts coracle on all of them at once: the ones that join wait for the first server.
// It returns when all nodes are Ready and all servers are voting members of etcd.
func NewCluster(t testing.TB, plan Plan) *Cluster {
	t.Helper()
	Bin(t)
	began := time.Now()
	if !plan.Net.IsValid() {
		plan.Net = netip.MustParsePrefix("172.30.0.0/24")
	}
	c := &Cluster{t: t, plan: plan, Wire: NewWire(t, plan.Net), args: map[string][]string{}, running: map[string]*Server{}}
	c.Links = NewLinks(t, c.Wire)
	for i := range plan.Servers {
		c.Servers = append(c.Servers, c.NewHost(fmt.Sprintf("server-%d", i+1)))
	}
	for i := range plan.Agents {
		c.Agents = append(c.Agents, c.NewHost(fmt.Sprintf("agent-%d", i+1)))
	}
	if plan.Stopped {
		return c
	}
	made := time.Since(began)
	for _, h := range c.Hosts() {
		c.Start(h)
	}
	c.AwaitHealthy(time.Time{}, 2*time.Minute+time.Duration(plan.Agents)*5*time.Second)
	t.Logf("hosts: %s; made in %.1f s, all Ready after %.1f s", c.names(), made.Seconds(), time.Since(began).Seconds())
	return c
}

// NewHost makes a host on the cluster's wire, ready for Start.
func (c *Cluster) NewHost(name string) *Host {
	c.t.Helper()
	of := c.plan.Options
	of.OwnPayload = of.OwnPayload || c.plan.Service
	h := New(c.t, c.Wire, name, of)
	c.Provision(h)
	return h
}

// Provision writes the files that must be on a host before coracle starts for the first time.
func (c *Cluster) Provision(h *Host) {
	c.t.Helper()
	h.must(os.MkdirAll(h.Path("/etc/coracle"), 0o755))
	h.must(os.WriteFile(h.Path(tokenFile), []byte(token+"\n"), 0o600))
	if c.plan.Images {
		h.CopyImages()
	}
	c.prepare(h)
}

func (c *Cluster) prepare(h *Host) {
	if c.plan.Prepare != nil {
		c.args[h.Name] = c.plan.Prepare(h)
	}
}

// AddAgents makes further hosts for agents and starts coracle on all of them at once. AwaitHealthy waits for them.
func (c *Cluster) AddAgents(n int) {
	c.t.Helper()
	var added []*Host
	for range n {
		h := c.NewHost(fmt.Sprintf("agent-%d", len(c.Agents)+1))
		c.Agents = append(c.Agents, h)
		added = append(added, h)
	}
	for _, h := range added {
		c.Start(h)
	}
}

// Hosts returns all hosts, servers first.
func (c *Cluster) Hosts() []*Host { return slices.Concat(c.Servers, c.Agents) }

func (c *Cluster) names() string {
	var names []string
	for _, h := range c.Hosts() {
		names = append(names, h.Name+" "+h.IP.String())
	}
	return strings.Join(names, ", ")
}

// command returns coracle's role and arguments on a host.
func (c *Cluster) command(h *Host) (role string, args []string) {
	args = append([]string{"--token-file=" + tokenFile}, c.args[h.Name]...)
	first := c.Servers[0]
	if h.Name != first.Name {
		at := first.IP.String()
		if c.plan.Join != nil {
			at = c.plan.Join(h, first)
		}
		args = append(args, "--server=https://"+net.JoinHostPort(at, "6443"))
	} else {
		args = append(args, c.plan.ServerArgs...)
	}
	if strings.HasPrefix(h.Name, "agent") {
		return "agent", args
	}
	return "server", args
}

// Start starts coracle on a host that is up. The arguments are the same every time.
func (c *Cluster) Start(h *Host) *Server {
	c.t.Helper()
	role, args := c.command(h)
	start := h.start
	if c.plan.Service {
		start = h.startService
	}
	s := start(role, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[h.Name] = s
	return s
}

// Install installs coracle as a service on a host of a plan with Service, without starting it.
func (c *Cluster) Install(h *Host) {
	c.t.Helper()
	role, args := c.command(h)
	h.install(role, args)
}

// Running is the server or agent that Start started last on the host.
func (c *Cluster) Running(h *Host) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[h.Name]
}

// Boot boots a killed host and starts coracle on it.
func (c *Cluster) Boot(h *Host) {
	c.t.Helper()
	h.Boot()
	c.prepare(h)
	c.Start(h)
}

// For is the cluster for a subtest: its methods fail t. Its hosts must not be booted or killed.
func (c *Cluster) For(t testing.TB) *Cluster {
	sub := &Cluster{Wire: c.Wire, Links: c.Links, t: t, plan: c.plan, kubeconfig: c.kubeconfig, args: c.args, running: c.running}
	for _, h := range c.Servers {
		sub.Servers = append(sub.Servers, h.For(t))
	}
	for _, h := range c.Agents {
		sub.Agents = append(sub.Agents, h.For(t))
	}
	return sub
}

// Config is a client configuration of the administrator that dials an address from a host.
func (c *Cluster) Config(h *Host, address string) (*rest.Config, error) {
	data, err := os.ReadFile(c.Servers[0].Path("/etc/coracle/kubeconfig.yaml")) // it changes with the cluster's authorities
	switch {
	case err == nil:
		c.kubeconfig = data
	case c.kubeconfig == nil:
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(c.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Host, config.Dial = "https://"+address, h.Dial
	config.QPS, config.Burst = 1000, 1000
	if c.plan.Clocks { // this machine cannot tell whether certificates are valid there, and the administrator's is renewed
		pki := c.Servers[0].Data("server", "pki")
		config.TLSClientConfig = rest.TLSClientConfig{Insecure: true, CertFile: filepath.Join(pki, "admin.crt"), KeyFile: filepath.Join(pki, "admin.key")}
	}
	return config, nil
}

// The addresses at which a host reaches the API: its balancer, and on a server its own.
const (
	Balancer = "127.0.0.1:6444"
	OwnAPI   = "127.0.0.1:6443"
)

// Client is a clientset of the administrator that dials an address from a host.
func (c *Cluster) Client(h *Host, address string) (kubernetes.Interface, error) {
	config, err := c.Config(h, address)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}
