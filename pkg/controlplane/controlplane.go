// Package controlplane is the composition root of the control plane: its components and their dependencies.
package controlplane

import (
	"context"
	"path/filepath"
	"slices"

	"k8s.io/apiserver/pkg/admission"

	embedded "github.com/coracle-dev/coracle/manifests"
	"github.com/coracle-dev/coracle/pkg/addons"
	"github.com/coracle-dev/coracle/pkg/addons/manifests"
	"github.com/coracle-dev/coracle/pkg/cluster/csrapprover"
	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/nodeaddresses"
	"github.com/coracle-dev/coracle/pkg/cluster/nodeadmission"
	"github.com/coracle-dev/coracle/pkg/cluster/noderoles"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/clocksteps"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/heldsocket"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/kubernetes/apiserver"
	"github.com/coracle-dev/coracle/pkg/kubernetes/controllermanager"
	"github.com/coracle-dev/coracle/pkg/kubernetes/leaderelection"
	"github.com/coracle-dev/coracle/pkg/kubernetes/scheduler"
	"github.com/coracle-dev/coracle/pkg/network/kubedns"
)

// Add adds all components of the control plane to g. The front has created the keys, certificates and kubeconfigs.
func Add(g *lifecycle.Group, cfg config.Config, report *state.Recorder) error {
	_, err := add(g, cfg, report)
	return err
}

func add(g *lifecycle.Group, cfg config.Config, report *state.Recorder) (*leaderelection.Leadership, error) {
	socket := heldsocket.Take()
	dirs := cfg.Dirs
	coracle := dirs.ServerConfig("coracle.kubeconfig") // of user system:coracle
	gates, err := featureGates(cfg)
	if err != nil {
		return nil, err
	}
	kube.ReloadCertificates(cfg.CertificateLife)
	g.Add("clock", clocksteps.Steps{})
	data := addStorage(g, cfg)
	joins, err := newJoinEndpoint(cfg)
	if err != nil {
		return nil, err
	}
	secrets, encryptionFile := data.addEncryption(g, cfg)
	showMetrics(cfg)
	extras := newAddonParts(cfg, report, joins)
	accounts, former := accountKeys(cfg), joins.watchFormer()
	api := g.Add("kube-apiserver", apiserver.APIServer{
		Store: data.store, API: cfg.API, Network: cfg.Network, Security: cfg.Security,
		Issuer:   accounts.Issuer,
		Accounts: accounts,
		Files:    apiserverFiles(dirs),
		AuditLog: dirs.AuditLog(), InMemory: cfg.Ephemeral.On,
		Encryption: encryptionFile,
		Extension:  joins.extension(),
		Egress:     joins.egress(cfg),
		Alone:      func() bool { return join.Alone(cfg) },
		Socket:     socket,
		Guard:      joins.guard,
		Groups:     extras.groups,
		Admission:  append(extras.admission, addon.Admission{Name: nodeadmission.Name, New: func() admission.Interface { return nodeadmission.New(cfg) }}),
		Gates:      gates,
		Args:       cfg.Args["kube-apiserver"],
	}, data.unit, secrets)
	data.addAuthorities(g, cfg, accounts, former, api)
	files, err := embedded.Render(cfg, addons.Manifests()...)
	if err != nil {
		return nil, err
	}
	objects := g.Add("manifests", manifests.Manifests{
		Kubeconfig: dirs.ServerConfig("admin.kubeconfig"),
		Embedded:   files,
		Dir:        dirs.Manifests(),
		Copy:       dirs.ManifestsToRead(),
		Node:       cfg.Node.Name,
		Report:     func(m []state.Manifest) { report.Detail(state.ManifestsDetail, m) },
	}, api)
	// Components that need lead run on one server at a time.
	leader := leaderelection.New(coracle, cfg.Node.Name, data.several)
	leaderNeeds := api
	if cfg.Datastore.External() { // then the election takes place from the first start on, and needs the role in the manifests
		leaderNeeds = objects
	}
	lead := g.Add("leadership", leader, leaderNeeds)
	publisher, err := joins.publisher(cfg, data, leader)
	if err != nil {
		return nil, err
	}
	g.Add("join", publisher, objects)
	g.Add("kube-controller-manager", controllermanager.ControllerManager{
		Kubeconfig:        dirs.ServerConfig("controller-manager.kubeconfig"),
		CA:                pkiFile(dirs, "ca.crt"),
		Signer:            pkiFile(dirs, pki.SignerFile),
		CAKey:             pkiFile(dirs, "ca.key"),
		CertificateLife:   cfg.CertificateLife,
		ServiceAccountKey: pkiFile(dirs, "sa.key"),
		VolumePlugins:     dirs.VolumePlugins(),
		Network:           cfg.Network,
		Args:              cfg.Args["kube-controller-manager"],
	}, lead)
	g.Add("kube-dns", kubedns.KubeDNS{
		Kubeconfig: coracle,
		Network:    cfg.Network,
		Disabled:   cfg.Disabled("dns"),
	}, lead, objects)
	memory := &noderoles.Memory{File: dirs.OwnNodes()}
	g.Add("node-roles", noderoles.Roles{
		Kubeconfig: coracle,
		Node:       cfg.Node.Name,
		Names:      cfg.API.SANs,
		Mine:       func(ctx context.Context) error { return joins.isOwn(ctx, cfg) },
		Memory:     memory,
	}, objects)
	g.Add("node-addresses", nodeaddresses.Addresses{
		Kubeconfig: coracle,
		Reserved:   slices.Concat(cfg.Network.ClusterCIDRs, cfg.Network.ServiceCIDRs),
	}, lead, objects)
	g.Add("csr-approver", csrapprover.Approver{
		Kubeconfig: coracle,
		Config:     cfg,
	}, lead, objects)
	if err := addEtcdServices(g, cfg, data, report, lead, objects); err != nil {
		return nil, err
	}
	extras.add(g, map[addon.Event]*lifecycle.Unit{addon.Leading: lead}, objects)
	addScheduler(g, cfg, memory, api, lead)
	return leader, nil
}

// addScheduler adds the scheduler. After a change of the machine's name it first adds the removal of the former node, so that
// no new pods are assigned to it.
func addScheduler(g *lifecycle.Group, cfg config.Config, memory *noderoles.Memory, api, lead *lifecycle.Unit) {
	needs := []*lifecycle.Unit{lead}
	if len(memory.Former(cfg.Node.Name)) > 0 {
		needs = append(needs, g.Add("former-node", noderoles.Former{
			Kubeconfig: cfg.Dirs.ServerConfig("coracle.kubeconfig"),
			Node:       cfg.Node.Name,
			Memory:     memory,
		}, api))
	}
	g.Add("kube-scheduler", scheduler.Scheduler{
		Kubeconfig: cfg.Dirs.ServerConfig("scheduler.kubeconfig"),
		Config:     cfg.API.SchedulerConfig,
		Effective:  cfg.Dirs.ControlPlaneRun("scheduler.yaml"),
		Args:       cfg.Args["kube-scheduler"],
	}, needs...)
}

// pkiFile returns the path of a file among the cluster's keys and certificates.
func pkiFile(d paths.Dirs, name string) string { return filepath.Join(d.PKI(), name) }

func apiserverFiles(d paths.Dirs) apiserver.Files {
	return apiserver.Files{
		ClientCA:          pkiFile(d, "ca.crt"),
		Cert:              pkiFile(d, "apiserver.crt"),
		Key:               pkiFile(d, "apiserver.key"),
		ServiceAccountKey: pkiFile(d, "sa.key"),
		ServiceAccountPub: pkiFile(d, "sa.pub"),
		KubeletCA:         pkiFile(d, "ca.crt"),
		KubeletClientCert: pkiFile(d, "apiserver-kubelet-client.crt"),
		KubeletClientKey:  pkiFile(d, "apiserver-kubelet-client.key"),
		ProxyClientCA:     pkiFile(d, "front-proxy-ca.crt"),
		ProxyClientCert:   pkiFile(d, "front-proxy-client.crt"),
		ProxyClientKey:    pkiFile(d, "front-proxy-client.key"),
		Authentication:    d.ControlPlaneRun("authentication.yaml"),
		AuditPolicy:       d.ControlPlaneRun("audit-policy.yaml"),
		Admission:         d.ControlPlaneRun("admission.yaml"),
	}
}
