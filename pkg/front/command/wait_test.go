package command

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// machine is a run directory in which processes tell things.
type machine struct {
	t    *testing.T
	dirs paths.Dirs
	cfg  config.Config
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, dirs: paths.Default()}
	m.dirs.Run = t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	m.cfg = config.Config{Role: config.Server, Dirs: m.dirs}
	m.cfg.API.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	return m
}

func (m *machine) start() {
	m.t.Helper()
	data, err := json.Marshal(m.cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := atomicfile.WriteVolatile(m.dirs.Resolved(), data, 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.tell(state.Front)
}

// tell writes what a process, played by this one, says of its units.
func (m *machine) tell(process string, units ...lifecycle.Status) {
	m.t.Helper()
	ticks, err := state.StartTicks(os.Getpid())
	if err != nil {
		m.t.Fatal(err)
	}
	p := state.Process{Name: process, PID: os.Getpid(), StartTicks: ticks, Units: units}
	if err := state.Write(m.dirs, p); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) waiting(out *bytes.Buffer, names ...string) *waiting {
	m.t.Helper()
	wanted, err := wantedConditions(names)
	if err != nil {
		m.t.Fatal(err)
	}
	return &waiting{where: where{run: m.dirs.Run}, wanted: wanted, explicit: len(names) > 0, out: out}
}

func ready(name string) lifecycle.Status { return lifecycle.Status{Name: name, State: lifecycle.Ready} }

func TestWaitIsEventDriven(t *testing.T) {
	m := newMachine(t)
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error)
	go func() { done <- m.waiting(&out, "api", "node").run(ctx) }()
	m.start()
	m.tell(state.ControlPlane, lifecycle.Status{Name: "kube-apiserver", State: lifecycle.Starting, Waiting: "/readyz"})
	m.tell(state.Node, ready("node-ready"))
	m.tell(state.ControlPlane, ready("kube-apiserver"))
	told := time.Now()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(told); took > 10*time.Second {
		t.Errorf("noticed after %s", took)
	}
	if text := out.String(); !strings.Contains(text, "api is ready\n") || !strings.Contains(text, "node is ready\n") {
		t.Errorf("%q", text)
	}
}

func TestWaitSaysWhatIsMissing(t *testing.T) {
	degraded := ready("node-ready")
	degraded.Waiting = "the pod network"
	for _, c := range []struct {
		name  string
		set   func(*machine)
		names []string
		want  string
	}{
		{"nothing", func(*machine) {}, []string{"api"}, "api: coracle has not been started"},
		{"front dead", func(m *machine) {
			m.start()
			_ = state.Write(m.dirs, state.Process{Name: state.Front, PID: os.Getpid(), StartTicks: 1})
		}, []string{"api"}, "api: coracle is not running"},
		{"half dead", func(m *machine) {
			m.start()
			front, _, _ := state.Read(m.dirs, state.Front)
			front.Children = []state.Child{{Name: state.ControlPlane, LastExit: "was killed (SIGKILL)"}}
			_ = state.Write(m.dirs, front)
		}, []string{"api"}, "api: the process control-plane has not started; the last one was killed (SIGKILL)"},
		{"needs", func(m *machine) {
			m.start()
			m.tell(state.Node, ready("containerd"), lifecycle.Status{Name: "kubelet", State: lifecycle.Starting},
				lifecycle.Status{Name: "node-ready", State: lifecycle.Waiting, Needs: []string{"containerd", "kubelet"}})
		}, []string{"node"}, "node: node-ready is not started: it needs kubelet"},
		{"degraded", func(m *machine) { m.start(); m.tell(state.Node, degraded) }, []string{"node"}, "node: node-ready is not ready: the pod network"},
		{"failed", func(m *machine) {
			m.start()
			m.tell(state.Node, lifecycle.Status{Name: "node-ready", State: lifecycle.Failed, Error: "no such node"})
		}, []string{"node"}, "node: node-ready: no such node"},
		{"no such unit", func(m *machine) { m.start(); m.tell(state.Node) }, []string{"node"}, "node: the process node has not come to node-ready"},
		{"port closed", func(m *machine) {
			m.cfg.API.Port = 1
			m.start()
			m.tell(state.ControlPlane, ready("kube-apiserver"))
		}, []string{"api"}, "api: connecting to the API: "},
		{"switched off", func(m *machine) { m.cfg.Disable = []string{"dns"}; m.start() }, []string{"dns"}, "makes no sense: it is switched off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			c.set(m)
			var out bytes.Buffer
			w := m.waiting(&out, c.names...)
			w.once = true
			if err := w.run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestWaitGivesUp(t *testing.T) {
	m := newMachine(t)
	m.start()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	if err := m.waiting(&out).run(ctx); err == nil || !strings.HasPrefix(err.Error(), "gave up waiting: api: ") {
		t.Errorf("%v", err)
	}
}

func TestWaitLeavesOutWhatIsOff(t *testing.T) {
	m := newMachine(t)
	m.cfg.Disable = []string{"dns"}
	m.start()
	m.tell(state.ControlPlane, ready("kube-apiserver"))
	m.tell(state.Node, ready("node-ready"))
	var out bytes.Buffer
	if err := m.waiting(&out).run(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestWaitWithoutNetwork: a node counts as ready that lacks nothing but the network of another's plug-in, if that is asked for.
func TestWaitWithoutNetwork(t *testing.T) {
	lacking, both, other := ready("node-ready"), ready("node-ready"), ready("node-ready")
	lacking.Waiting = "the node to be Ready: KubeletNotReady: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"
	both.Waiting = "the node to be Ready: KubeletNotReady: [container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady, PLEG is not healthy]"
	other.Waiting = "the node to be Ready: KubeletNotReady: PLEG is not healthy"
	for _, c := range []struct {
		name    string
		backend config.Backend
		lax     bool
		says    lifecycle.Status
		ready   bool
	}{
		{"asked for", config.BackendNone, true, lacking, true},
		{"not asked for", config.BackendNone, false, lacking, false},
		{"coracle's network", config.VXLAN, true, lacking, false},
		{"something else", config.BackendNone, true, other, false},
		{"something else too", config.BackendNone, true, both, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.cfg.Network.Backend = c.backend
			m.start()
			m.tell(state.Node, c.says)
			w := m.waiting(&bytes.Buffer{}, "node")
			w.once, w.withoutNetwork = true, c.lax
			if err := w.run(t.Context()); (err == nil) != c.ready {
				t.Errorf("it is ready: %v; %v", c.ready, err)
			}
		})
	}
}

func TestProbeDNSWithNobodyToAsk(t *testing.T) {
	var cfg config.Config
	if err := probeDNS(t.Context(), cfg); err != nil {
		t.Errorf("no address to ask: %v", err)
	}
	cfg.Network.DNS, cfg.Network.Domain = []netip.Addr{netip.MustParseAddr("127.0.0.1")}, "cluster.local"
	cfg.Disable = []string{"kube-proxy"}
	if err := probeDNS(t.Context(), cfg); err != nil {
		t.Errorf("without kube-proxy: %v", err)
	}
}

// TestProbeDNSAsksAgain: the first query may get lost, because kube-proxy's rules come a moment later. The test needs root, for port 53.
func TestProbeDNSAsksAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it listens on port 53, which needs root")
	}
	address := netip.MustParseAddr("127.53.0.10")
	conn, err := net.ListenPacket("udp", netip.AddrPortFrom(address, 53).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		for query := make([]byte, 512); ; {
			_, _, err := conn.ReadFrom(query) // the first
			if err != nil {
				return
			}
			n, from, err := conn.ReadFrom(query[:cap(query)])
			var m dnsmessage.Message
			if err != nil || m.Unpack(query[:n]) != nil {
				return
			}
			m.Response, m.Additionals = true, nil
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET},
				Body:   &dnsmessage.SRVResource{Port: 443, Target: dnsmessage.MustNewName("kubernetes.default.svc.cluster.local.")},
			}}
			answer, _ := m.Pack()
			_, _ = conn.WriteTo(answer, from)
		}
	}()
	var cfg config.Config
	cfg.Network.DNS, cfg.Network.Domain = []netip.Addr{address}, "cluster.local"
	if err := probeDNS(t.Context(), cfg); err != nil {
		t.Error(err)
	}
}
