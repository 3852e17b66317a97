// Package node is the composition root of a node: what it is made of, and what needs what.
package node

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/coracle-dev/coracle/pkg/addons"
	"github.com/coracle-dev/coracle/pkg/cluster/nodeaddresses"
	"github.com/coracle-dev/coracle/pkg/cluster/nodeready"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/kubernetes/kubelet"
	"github.com/coracle-dev/coracle/pkg/kubernetes/kubeproxy"
	"github.com/coracle-dev/coracle/pkg/machine/host"
	"github.com/coracle-dev/coracle/pkg/network/flannel"
	"github.com/coracle-dev/coracle/pkg/network/networkpolicy"
	"github.com/coracle-dev/coracle/pkg/network/nft"
	"github.com/coracle-dev/coracle/pkg/runtime/containerd"
	"github.com/coracle-dev/coracle/pkg/runtime/drain"
	"github.com/coracle-dev/coracle/pkg/runtime/imageimport"
	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// Add prepares the machine and enters every part of a node into g.
func Add(g *lifecycle.Group, cfg config.Config, report *state.Recorder) error {
	m := machine{began: time.Now(), Facts: host.Probe()}
	if err := prepare(cfg, report); err != nil {
		return err
	}
	showMetrics(cfg)
	var err error
	if m.resolvConf, err = podResolvConf(cfg); err != nil {
		return err
	}
	m.snapshotter = containerd.Snapshotter(cfg.Dirs.Containerd())
	return m.add(g, cfg, report)
}

// machine is what the parts have to know about this one.
type machine struct {
	host.Facts
	began       time.Time // when this process started
	resolvConf  string    // the pods'
	snapshotter string
}

func (m machine) add(g *lifecycle.Group, cfg config.Config, report *state.Recorder) error {
	dirs := cfg.Dirs
	who := identitiesOf(cfg)
	gate := kube.NewAPIGate(who.reader, cfg.Node.Name)
	if cfg.Role == config.Agent {
		gate.Admit = func(ctx context.Context) error { return admitted(ctx, cfg) }
	}
	node := kube.NewOwnNode(who.reader, cfg.Node.Name)

	servers := apiBalancer(cfg, gate, report)
	reach := g.Add("balancer", servers)
	cri := g.Add("containerd", containerd.Containerd{
		ConfigFile: dirs.NodeConfig("containerd.toml"), DropIns: cfg.Node.ContainerdConfigDir,
		Root: dirs.Containerd(), State: dirs.ContainerdState(), Socket: dirs.ContainerdSocket(), ShimSocket: dirs.ShimSockets(),
		Snapshotter: m.snapshotter, RuncState: dirs.Runc(),
		Runc: dirs.Tool("runc"), Shim: dirs.Tool("containerd-shim-runc-v2"),
		CNIBin: []string{dirs.CNIPlugins(), dirs.CNIBin()}, CNIConf: cniDir(dirs),
		SandboxImage: version.PauseImage, Registries: []string{dirs.RegistryHosts(), "/etc/containerd/certs.d", "/etc/docker/certs.d"},
		Pulls: containerd.Pulls{
			File: registries.NewLive(dirs.Registries()), NoDefault: cfg.Node.NoDefaultRegistry,
			Report: func(err error) { report.Detail(registries.Report().Key, registries.NewStatus(dirs.Registries(), err)) },
		},
		SystemdCgroup: m.SystemdCgroups, RestrictOOMScore: !m.Resource, NoKeyrings: !m.Keyrings, AppArmor: m.AppArmor, Volatile: cfg.Ephemeral.On,
		UnprivilegedPorts: m.UnprivilegedPorts, UnprivilegedICMP: m.UnprivilegedICMP,
		LogLevel: containerdLevel(cfg.Log), PreferIPv6: cfg.Network.ClusterCIDRs[0].Addr().Is6(),
	})
	archives := g.Add("images", imageimport.Images{
		Socket: dirs.ContainerdSocket(), Snapshotter: m.snapshotter,
		System: dirs.SystemImages(), User: dirs.Images(), Index: dirs.ImageIndex(),
		Report: func(a []imageimport.Archive) { report.Detail("images", a) },
	}, cri)
	api := g.Add("api", gate, reach)
	registered := g.Add("node", node, api)
	asKubelet := who.add(g, cfg, gate, api)
	extras, err := addAddons(g, addon.Node{Config: cfg, Kubeconfig: who.node, Kubelet: who.kubelet, Own: node, API: gate.Opened(), Bridge: footprint.Bridge},
		report, map[addon.Event]*lifecycle.Unit{addon.Containerd: cri, addon.Registered: registered, addon.KubeletUser: asKubelet})
	if err != nil {
		return err
	}
	pods := append([]*lifecycle.Unit{cri, reach}, extras...)
	if cfg.DrainOnStop {
		g.StopTimeout = drainTimeout + 8*time.Second
		pods = append(pods, g.Add("drain", drain.Drain{Socket: dirs.ContainerdSocket(), Timeout: drainTimeout}, cri))
	}
	if hasFiles(dirs.StaticPods()) {
		pods = append(pods, archives) // static pods start with the kubelet, and need the pause image
	}
	agent := g.Add("kubelet", kubelet.Kubelet{
		Name: cfg.Node.Name, IPs: cfg.Node.IPs, Labels: cfg.Node.Labels, Taints: cfg.Node.Taints,
		ExternalAddresses: len(cfg.Node.ExternalIPs) > 0,
		Kubeconfig:        who.kubelet, BootstrapKubeconfig: who.bootstrap, Identity: who.has, APIReady: gate.Opened(),
		ConfigFile: dirs.NodeConfig("kubelet.yaml"), DropIns: cfg.Node.KubeletConfigDir,
		Root: dirs.Kubelet, PKI: dirs.NodePKI(), ClientCA: dirs.NodeCA(), StaticPods: dirs.StaticPods(),
		CRISocket: dirs.ContainerdSocket(), ClusterDNS: cfg.Network.DNS, Domain: cfg.Network.Domain, ResolvConf: m.resolvConf,
		CgroupV2: m.CgroupV2, SystemdCgroup: m.SystemdCgroups, DelayShutdown: m.Logind,
		Args: cfg.Args["kubelet"],
	}, pods...)
	g.Add("tunnels", tunnels(cfg, servers, node, report))
	g.Add("external-ip", nodeaddresses.Publisher{Node: node, Kubeconfig: who.kubelet, IPs: cfg.Node.ExternalIPs}, registered, asKubelet)
	if !cfg.Disabled("kube-proxy") {
		g.Add("kube-proxy", kubeproxy.KubeProxy{
			Node: node, Since: m.began, Name: cfg.Node.Name, IP: cfg.Node.IPs[0], Kubeconfig: who.node,
			ClusterCIDRs: cfg.Network.ClusterCIDRs, Args: cfg.Args["kube-proxy"],
		}, registered)
	}
	ready, network := []*lifecycle.Unit{registered, agent}, registered
	if cfg.Network.Backend != config.BackendNone {
		network = g.Add("flannel", flannel.Flannel{
			Node: node, Own: who.kubelet, OwnReady: asKubelet.Ready(), All: who.node,
			Backend: string(cfg.Network.Backend), IPs: cfg.Node.IPs, Iface: cfg.Network.Iface, ClusterCIDRs: cfg.Network.ClusterCIDRs,
			ConfigFile: dirs.NodeConfig("flannel.json"), SubnetFile: dirs.Subnet(), MemoryFile: dirs.NodeConfig("subnet.json"), Bridge: footprint.Bridge,
			NoteRules: noteRules(dirs),
		})
		ready = append(ready, network)
	}
	if !cfg.Disabled("dns") {
		server, err := nameServer(cfg, node, network, report)
		if err != nil {
			return err
		}
		g.Add("dns", server, reach) // it waits for the network itself, and not for ever
	}
	g.Add("node-ready", nodeready.NodeReady{Node: node, Since: m.began, OtherNetwork: cfg.Network.Backend == config.BackendNone}, ready...)
	return nil
}

// drainTimeout is how long pods have to stop when coracle stops with --drain-on-stop.
const drainTimeout = 20 * time.Second

// prepare is the work that comes before any part: the machine, PATH and the CNI configuration, which the kubelet
// would look for every five seconds only.
func prepare(cfg config.Config, report *state.Recorder) error {
	defer report.Phase("prepare the host")()
	l := ledger.Open(cfg.Dirs)
	l.TableExists = func(name string) bool {
		there, err := nft.Exists(name)
		return there || err != nil // what may be somebody else's is not ours
	}
	if err := footprint.Note(l, cfg); err != nil {
		return err
	}
	if err := refuseForeign(l, cfg); err != nil {
		return err
	}
	if err := host.Prepare(l, cfg.Dirs.Run, cfg.Node.IPs, hasIPv6(cfg)); err != nil {
		return fmt.Errorf("preparing the host: %w", err)
	}
	if err := host.Standalone(l, cfg.Node.IPs, cfg.Network.ServiceCIDRs); err != nil {
		return fmt.Errorf("preparing the network: %w", err)
	}
	if err := setPath(cfg.Dirs); err != nil {
		return err
	}
	for _, a := range addons.All() {
		if a.DisabledNode != nil && !a.Enabled(cfg) {
			if err := a.DisabledNode(); err != nil {
				return err
			}
		}
	}
	if cfg.Network.Backend == config.BackendNone {
		return removeIfOurs(cfg.Dirs.CNIConfig())
	}
	return flannel.CNI{
		File: cfg.Dirs.CNIConfig(), Bridge: footprint.Bridge, SubnetFile: cfg.Dirs.Subnet(), StateDir: cfg.Dirs.CNIState(),
		PolicySocket: networkpolicy.Socket(cfg),
	}.Write()
}

func removeIfOurs(file string) error {
	if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("removing the CNI configuration of an earlier start: %w", err)
	}
	return nil
}
