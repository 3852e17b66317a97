// Package doctor diagnoses a coracle that runs, or that should run: with the probes of the machine of package check, and with
// probes of processes, etcd, the API, certificates, DNS, the container runtime and the networks.
//
// Probes do not depend on each other and each has a time limit, so that they work while much is broken: without the API, with
// etcd without a quorum, with a child process that is dead or frozen, on an agent without a server. They change nothing and
// open no port.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
)

// Limit is the time limit of one probe.
const Limit = 8 * time.Second

// Doctor is one diagnosis of the coracle of this machine.
type Doctor struct {
	// Config is the configuration of its last start, or of the next one.
	Config  config.Config
	Environ []string
	// OnlyNode leaves out probes of other nodes.
	OnlyNode bool
	// Addons are the add-ons that have probes.
	Addons []addon.Addon

	processes func() processes
	api       func() access
	nodes     func() ([]corev1.Node, error)
	servers   func() []answer
}

// row is a probe of the table.
type row struct {
	name, about string
	run         func(*Doctor, context.Context) []check.Verdict
	needs       need
	others      bool // it probes other nodes
}

// need is the condition for a probe.
type need int

const (
	nothing need = iota
	aRun         // coracle runs
	aServer      // coracle runs, and this machine is a server
)

// table lists the probes of a running coracle.
var table = []row{
	{"processes", "coracle's processes", (*Doctor).alive, nothing, false},
	{"components", "the parts of each process", (*Doctor).components, aRun, false},
	{"restarts", "child processes that ended unexpectedly", (*Doctor).restarts, nothing, false},
	{"certificates", "validity, keys and signatures", (*Doctor).certificates, nothing, false},
	{"etcd", "members, leader, quorum, alarms, size and latency", (*Doctor).etcd, aServer, false},
	{"backups", "the last backup of the cluster: made in time, and tried", (*Doctor).backups, aServer, false},
	{"api", "the API as this node reaches it", (*Doctor).apiAnswers, aRun, false},
	{"servers", "every server of the cluster", (*Doctor).everyServer, aRun, false},
	{"clock-skew", "the servers' clocks against this one", (*Doctor).clockSkew, aRun, false},
	{"tunnels", "this node's tunnels to servers", (*Doctor).tunnels, aRun, false},
	{"node-access", "kubelets of all nodes, as this server reaches them", (*Doctor).nodeAccess, aServer, true},
	{"dns", "answers for names in the cluster and outside", (*Doctor).dns, aRun, false},
	{"dns-loop", "name servers that forward to the cluster's DNS", (*Doctor).dnsLoop, aRun, false},
	{"kubelet", "the kubelet's health", (*Doctor).kubelet, aRun, false},
	{"container-runtime", "containerd and its plugins", (*Doctor).runtime, aRun, false},
	{"images", "the pause image and imported images, complete", (*Doctor).images, aRun, false},
	{"services", "the API's Service, from this host", (*Doctor).services, aRun, false},
	{"pod-network", "the way to the pods of every node, with packets of full size", (*Doctor).podNetwork, aRun, true},
	{"nodes", "conditions of the nodes", (*Doctor).nodeConditions, aRun, false},
	{"leases", "node leases", (*Doctor).leases, aServer, true},
	{"pods", "pods that do not start", (*Doctor).pods, aRun, false},
	{"manifests", "manifests that are not applied", (*Doctor).manifests, aServer, false},
}

// rows returns the probes of the table and of add-ons.
func rows(addons []addon.Addon) []row { return slices.Concat(table, addonRows(addons)) }

// Names returns the names of all probes, in order.
func Names(addons []addon.Addon) []string {
	names := check.Names((&check.Machine{}).Probes())
	for _, r := range rows(addons) {
		names = append(names, r.name)
	}
	return names
}

// Probes returns the probes of the machine, and after them those of coracle.
func (d *Doctor) Probes() []check.Probe {
	d.processes = sync.OnceValue(func() processes { return readProcesses(d.Config.Dirs) })
	d.api = sync.OnceValue(d.connect)
	d.nodes = sync.OnceValues(d.listNodes)
	d.servers = sync.OnceValue(d.askServers)
	m := &check.Machine{Config: d.Config, Running: d.processes().frontAlive, Environ: d.Environ}
	probes := m.Probes()
	for _, r := range rows(d.Addons) {
		if r.others && d.OnlyNode {
			continue
		}
		probes = append(probes, check.Probe{Name: r.name, About: r.about, Run: func(ctx context.Context) []check.Verdict { return d.run(ctx, r) }})
	}
	return probes
}

func (d *Doctor) run(ctx context.Context, r row) []check.Verdict {
	switch {
	case r.needs == aServer && d.Config.Role == config.Agent:
		return check.Skipf("this machine is an agent: ask a server")
	case r.needs != nothing && !d.processes().any():
		return check.Skipf("coracle does not run here")
	}
	return r.run(d, ctx)
}

// access is a client of the API, or the reason why there is none.
type access struct {
	client *kubernetes.Clientset
	err    error
}

// errNoAPI is the finding of probes that need the API; the probe "api" reports why it does not answer.
var errNoAPI = errors.New("the API does not answer, see check api")

// detail reads a report of a component about its own work; false if there is none.
func (d *Doctor) detail(name string, into any) bool { return d.processes().detail(name, into) }

// several reports whether the machine is one of several servers, or an agent.
func (d *Doctor) several() bool {
	return d.Config.Role == config.Agent || d.Config.Join.Joined || len(d.Config.Join.Servers) > 1
}

// first shortens a list to n verdicts and one that counts the others.
func first(verdicts []check.Verdict, n int) []check.Verdict {
	if len(verdicts) <= n {
		return verdicts
	}
	more := verdicts[n]
	more.Finding = fmt.Sprintf("and %d more like these, as: %s", len(verdicts)-n, more.Finding)
	return append(slices.Clone(verdicts[:n]), more)
}

// children are the names of the child processes of the front.
var children = []string{state.ControlPlane, state.Node}
