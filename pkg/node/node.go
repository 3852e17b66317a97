// Package node is the composition root of a node: its components and their dependencies.
package node

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/addons"
	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/nodeaddresses"
	"github.com/coracle-dev/coracle/pkg/cluster/nodeready"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/clocksteps"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/kubernetes/kubelet"
	"github.com/coracle-dev/coracle/pkg/kubernetes/kubeproxy"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
	"github.com/coracle-dev/coracle/pkg/machine/host"
	"github.com/coracle-dev/coracle/pkg/network/flannel"
	"github.com/coracle-dev/coracle/pkg/network/networkpolicy"
	"github.com/coracle-dev/coracle/pkg/network/nft"
	"github.com/coracle-dev/coracle/pkg/runtime/attempts"
	"github.com/coracle-dev/coracle/pkg/runtime/containerd"
	"github.com/coracle-dev/coracle/pkg/runtime/drain"
	"github.com/coracle-dev/coracle/pkg/runtime/handlers"
	"github.com/coracle-dev/coracle/pkg/runtime/imageimport"
	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// Add prepares the machine and adds all components of a node to g.
func Add(g *lifecycle.Group, cfg config.Config, report *state.Recorder) error {
	f := facts{started: time.Now(), Facts: host.Probe()}
	if err := prepare(cfg, report); err != nil {
		return err
	}
	showMetrics(cfg)
	var err error
	if f.resolvConf, err = podResolvConf(cfg); err != nil {
		return err
	}
	f.snapshotter = containerd.Snapshotter(cfg.Dirs.Containerd())
	var wrong error
	if f.found, wrong = handlers.Find("/"); wrong != nil {
		logrus.WithField("component", "containerd").Warn(wrong)
	}
	return f.add(g, cfg, report)
}

// facts are the facts about this machine that components depend on.
type facts struct {
	host.Facts
	started     time.Time // when this process started
	resolvConf  string    // for pods that use the host's name servers
	snapshotter string
	found       []handlers.Handler // runtimes that the machine has
}

func (f facts) add(g *lifecycle.Group, cfg config.Config, report *state.Recorder) error {
	dirs := cfg.Dirs
	creds := credentialsOf(cfg)
	gate := kube.NewAPIGate(creds.reader, cfg.Node.Name)
	if cfg.Role == config.Agent {
		gate.Admit = func(ctx context.Context) error { return admitted(ctx, cfg) }
	}
	node := kube.NewOwnNode(creds.reader, cfg.Node.Name)

	kube.ReloadCertificates(cfg.CertificateLife)
	g.Add("clock", clocksteps.Steps{})
	servers := apiBalancer(cfg, gate, report)
	balancer := g.Add("balancer", servers)
	cri := g.Add("containerd", containerd.Containerd{
		ConfigFile: dirs.NodeConfig("containerd.toml"), DropIns: cfg.Node.ContainerdConfigDir,
		Root: dirs.Containerd(), State: dirs.ContainerdState(), Socket: dirs.ContainerdSocket(), ShimSocket: dirs.ShimSockets(),
		Databases: dirs.ContainerdDatabases(), Snapshotter: f.snapshotter, RuncState: dirs.Runc(), Found: f.found,
		Runc: dirs.Tool("runc"), Shim: dirs.Tool("containerd-shim-runc-v2"), SharedShims: cfg.Node.PodRuntime == config.SharedShims,
		CNIBin: []string{dirs.CNIPlugins(), dirs.CNIBin()}, CNIConf: cniDir(dirs),
		SandboxImage: version.PauseImage, Registries: []string{dirs.RegistryHosts(), "/etc/containerd/certs.d", "/etc/docker/certs.d"},
		Pulls: containerd.Pulls{
			File: registries.NewLive(dirs.Registries()), NoDefault: cfg.Node.NoDefaultRegistry,
			Report: func(err error) { report.Detail(registries.Report().Key, registries.NewStatus(dirs.Registries(), err)) },
		},
		Systemd: f.Systemd, SystemdCgroup: f.SystemdCgroups, RestrictOOMScore: !f.Resource, NoKeyrings: !f.Keyrings, AppArmor: f.AppArmor, Volatile: cfg.Ephemeral.On,
		UnprivilegedPorts: f.UnprivilegedPorts, UnprivilegedICMP: f.UnprivilegedICMP,
		LogLevel: containerdLevel(cfg.Log), PreferIPv6: cfg.Network.ClusterCIDRs[0].Addr().Is6(),
	})
	archives := g.Add("images", imageimport.Images{
		Socket: dirs.ContainerdSocket(), Root: dirs.Containerd(), Snapshotter: f.snapshotter,
		System: dirs.SystemImages(), User: dirs.Images(), Index: dirs.ImageIndex(), Compared: dirs.ImagesCompared(),
		Report: func(a []imageimport.Archive) { report.Detail("images", a) },
	}, cri)
	g.Add("attempts", attempts.Attempts{Socket: dirs.ContainerdSocket()}, cri)
	api := g.Add("api", gate, balancer)
	registered := g.Add("node", node, api)
	kubeletUser := creds.add(g, cfg, gate, api)
	extras, err := addAddons(g, addon.Node{Config: cfg, Kubeconfig: creds.node, Kubelet: creds.kubelet, Own: node, API: gate.Opened(), Bridge: footprint.Bridge},
		report, map[addon.Event]*lifecycle.Unit{addon.Containerd: cri, addon.Registered: registered, addon.KubeletUser: kubeletUser})
	if err != nil {
		return err
	}
	pods := append([]*lifecycle.Unit{cri, balancer}, extras...)
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
		Kubeconfig:        creds.kubelet, BootstrapKubeconfig: creds.bootstrap, Identity: creds.identity, UnknownKey: join.ReasonUnknownKey, APIReady: gate.Opened(),
		ConfigFile: dirs.NodeConfig("kubelet.yaml"), DropIns: cfg.Node.KubeletConfigDir,
		Root: dirs.Kubelet, PKI: dirs.NodePKI(), ClientCA: dirs.NodeCA(), StaticPods: dirs.StaticPods(),
		CRISocket: dirs.ContainerdSocket(), ClusterDNS: cfg.Network.DNS, Domain: cfg.Network.Domain, ResolvConf: f.resolvConf,
		CgroupV2: f.CgroupV2, SystemdCgroup: f.SystemdCgroups, DelayShutdown: f.Logind,
		Strict: cfg.Security.Strict(), ProtectKernel: cfg.Security.CIS(), Ciphers: cfg.Security.Ciphers(),
		Args: cfg.Args["kubelet"],
	}, pods...)
	g.Add("announcer", announcements(cfg, servers, node))
	g.Add("tunnels", tunnels(cfg, servers, node, report))
	g.Add("external-ip", nodeaddresses.Publisher{Node: node, Kubeconfig: creds.kubelet, IPs: cfg.Node.ExternalIPs}, registered, kubeletUser)
	if !cfg.Disabled("kube-proxy") {
		g.Add("kube-proxy", kubeproxy.KubeProxy{
			Node: node, Since: f.started, Name: cfg.Node.Name, IP: cfg.Node.IPs[0], Kubeconfig: creds.node,
			ClusterCIDRs: cfg.Network.ClusterCIDRs, Args: cfg.Args["kube-proxy"],
		}, registered)
	}
	ready, network := []*lifecycle.Unit{registered, agent}, registered
	if cfg.Network.Backend != config.BackendNone {
		network = g.Add("flannel", flannel.Flannel{
			Node: node, Own: creds.kubelet, OwnReady: kubeletUser.Ready(), All: creds.node,
			Backend: string(cfg.Network.Backend), IPs: cfg.Node.IPs, Iface: cfg.Network.Iface, ClusterCIDRs: cfg.Network.ClusterCIDRs,
			ConfigFile: dirs.NodeConfig("flannel.json"), SubnetFile: dirs.Subnet(), KeyFile: dirs.WireGuardKey(), MemoryFile: dirs.NodeConfig("subnet.json"), Bridge: footprint.Bridge,
			NoteRules: noteRules(dirs),
		})
		ready = append(ready, network)
	}
	if !cfg.Disabled("dns") {
		server, err := nameServer(cfg, node, network, report)
		if err != nil {
			return err
		}
		g.Add("dns", server, balancer) // it waits for the network itself, for a limited time
	}
	g.Add("node-ready", nodeready.NodeReady{Node: node, Since: f.started, OtherNetwork: cfg.Network.Backend == config.BackendNone}, ready...)
	return nil
}

// drainTimeout is how long pods have to stop when coracle stops with --drain-on-stop.
const drainTimeout = 20 * time.Second

// prepare does what has to be done before any component starts. It also writes the CNI configuration, for which the kubelet
// would otherwise look every five seconds only.
func prepare(cfg config.Config, report *state.Recorder) error {
	defer report.Phase("prepare the host")()
	l := ledger.Open(cfg.Dirs)
	l.TableExists = func(name string) bool {
		there, err := nft.Exists(name)
		return there || err != nil // a table that may exist already is not recorded as coracle's
	}
	if err := footprint.Note(l, cfg); err != nil {
		return err
	}
	if err := refuseForeign(l, cfg); err != nil {
		return err
	}
	// Another distribution may have pods in this directory: until here, coracle has nothing there.
	if err := l.Note(ledger.Entry{Kind: ledger.Used, Name: cfg.Dirs.Kubelet}); err != nil {
		return err
	}
	if err := host.Prepare(l, cfg.Dirs.Run, cfg.Node.IPs, hasIPv6(cfg)); err != nil {
		return fmt.Errorf("preparing the host: %w", err)
	}
	if err := host.EnsureServiceRoutes(l, cfg.Node.IPs, cfg.Network.ServiceCIDRs); err != nil {
		return fmt.Errorf("preparing the network: %w", err)
	}
	if !cfg.Disabled("kube-proxy") {
		if err := kubeproxy.DropUntranslated(cfg.Network.ServiceCIDRs); err != nil {
			logrus.WithError(err).Warn("connections to Services may leave the node until kube-proxy has written its rules")
		}
	}
	if err := setPath(cfg.Dirs); err != nil {
		return err
	}
	if err := backup.RemoveLeft(cfg.Dirs); err != nil {
		logrus.WithError(err).Warn("removing what a killed restore has left")
	}
	for _, a := range addons.All() {
		if a.DisabledNode != nil && !a.Enabled(cfg) {
			if err := a.DisabledNode(); err != nil {
				return err
			}
		}
	}
	if !footprint.Overlay(cfg) {
		if err := nft.Remove(footprint.WireTable); err != nil {
			return err
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
