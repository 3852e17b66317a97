// Package pki makes and renews the keys and certificates of a cluster, and the kubeconfigs that use them. A table lists them all;
// docs/security.md explains it. Layout and names are kubeadm's.
//
// It uses the standard library only, because it runs in the front, before any Kubernetes code. It leaves to the
// kubelet the rotation of the kubelet's own two certificates, and to package certificates when to renew.
package pki

import (
	"crypto/x509"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// authority is a certificate authority of the cluster. It is valid for ten years and never replaced automatically.
type authority struct {
	Name string // file name without extension under the server's PKI directory
	CN   string
	Use  string
}

// The authorities. etcd's peers have their own, because a peer can write all of the cluster's data.
var (
	clusterCA    = authority{Name: "ca", CN: "kubernetes", Use: "every client, the API and the kubelets' servers"}
	frontProxyCA = authority{Name: "front-proxy-ca", CN: "front-proxy-ca", Use: "the aggregation layer, towards extension apiservers"}

	etcdCA = authority{Name: "etcd/ca", CN: "etcd-ca", Use: "the members of etcd, towards each other"}

	authorities = []authority{clusterCA, frontProxyCA, etcdCA}
)

// The organizations, which Kubernetes reads as groups.
const (
	groupMasters = "system:masters"
	groupNodes   = "system:nodes"
)

// The identity of coracle's parts on a node, with which the node also joins: the user NodeUser followed by the node's name, and a group.
const (
	NodeUser  = "system:coracle:node:"
	NodeGroup = "system:coracle:nodes"
	// ControllerUser is the user of coracle's own parts of the control plane.
	ControllerUser = "system:coracle"
)

// The directories of pairs.
var (
	inServer = place(paths.Dirs.PKI)
	inNode   = place(paths.Dirs.NodePKI)
)

type place func(paths.Dirs) string

// leaf is a certificate that an authority signs, stored as NAME.crt and NAME.key, valid for a year, or as long as is configured, and renewed after two thirds of it.
type leaf struct {
	Name  string
	CA    authority
	Dir   place
	CN    string // nodeName stands for the node's name
	Group string
	Usage []x509.ExtKeyUsage
	SANs  func(config.Config) sans // nil for none
	Use   string
	// Chain appends the authority's certificate to the leaf's, for joiners, which know the authority by its hash only.
	Chain bool
	// Identity says that the key must never be lost, because it identifies its owner.
	Identity bool
	// Rotated marks a pair that the kubelet rotates itself, stored in one file, in the layout of the kubelet's certificate store.
	Rotated bool
}

const nodeName = "{node}"

// Usages of certificates.
var (
	asClient = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	asServer = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	asPeer   = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
)

// serverLeaves are the certificates of the control plane.
var serverLeaves = []leaf{
	{Name: "apiserver", CA: clusterCA, Dir: inServer, CN: "kube-apiserver", Usage: asServer,
		SANs: apiserverSANs, Chain: true, Use: "kube-apiserver serves the API with it"},
	{Name: "apiserver-kubelet-client", CA: clusterCA, Dir: inServer, CN: "kube-apiserver-kubelet-client",
		Usage: asClient, Use: "kube-apiserver calls kubelets: logs, exec, port-forward"},
	{Name: "front-proxy-client", CA: frontProxyCA, Dir: inServer, CN: "front-proxy-client",
		Usage: asClient, Use: "kube-apiserver calls extension apiservers"},
	{Name: "admin", CA: clusterCA, Dir: inServer, CN: "system:admin", Group: groupMasters,
		Usage: asClient, Use: "the administrator, and what applies manifests"},
	{Name: "controller-manager", CA: clusterCA, Dir: inServer, CN: "system:kube-controller-manager",
		Usage: asClient, Use: "kube-controller-manager"},
	{Name: "scheduler", CA: clusterCA, Dir: inServer, CN: "system:kube-scheduler",
		Usage: asClient, Use: "kube-scheduler"},
	{Name: "coracle", CA: clusterCA, Dir: inServer, CN: ControllerUser,
		Usage: asClient, Use: "coracle's own parts of the control plane"},
	{Name: "etcd/peer", CA: etcdCA, Dir: inServer, CN: nodeName, Usage: asPeer,
		SANs: peerSANs, Use: "this member of etcd, towards the others"},
}

// nodeLeaves are the certificates of one node.
var nodeLeaves = []leaf{
	{Name: "kubelet-client", CA: clusterCA, Dir: inNode, CN: "system:node:" + nodeName, Group: groupNodes,
		Usage: asClient, Rotated: true, Use: "the kubelet calls the API"},
	{Name: "kubelet-server", CA: clusterCA, Dir: inNode, CN: "system:node:" + nodeName, Group: groupNodes,
		Usage: asServer, SANs: kubeletSANs, Rotated: true, Use: "the kubelet serves logs, exec and metrics"},
	{Name: "node", CA: clusterCA, Dir: inNode, CN: NodeUser + nodeName, Group: NodeGroup,
		Usage: asClient, Identity: true, Use: "kube-proxy, DNS and the rest of a node; and who it is when it joins"},
}

// kubeconfigFile is a generated kubeconfig: its name and directory, and the leaf with which it authenticates.
type kubeconfigFile struct {
	File string
	Leaf string
	Dir  func(paths.Dirs, string) string
}

var serverKubeconfigs = []kubeconfigFile{
	{File: "admin.kubeconfig", Leaf: "admin", Dir: paths.Dirs.ServerConfig},
	{File: "controller-manager.kubeconfig", Leaf: "controller-manager", Dir: paths.Dirs.ServerConfig},
	{File: "scheduler.kubeconfig", Leaf: "scheduler", Dir: paths.Dirs.ServerConfig},
	{File: "coracle.kubeconfig", Leaf: "coracle", Dir: paths.Dirs.ServerConfig},
}

var nodeKubeconfigs = []kubeconfigFile{
	{File: "kubelet.kubeconfig", Leaf: "kubelet-client", Dir: paths.Dirs.NodeConfig},
	{File: "node.kubeconfig", Leaf: "node", Dir: paths.Dirs.NodeConfig},
}

// allLeaves is the whole table, in order.
func allLeaves() []leaf { return slices.Concat(serverLeaves, nodeLeaves) }

// leafNamed returns the leaf with a name, which must be in the table.
func leafNamed(name string) leaf {
	all := allLeaves()
	return all[slices.IndexFunc(all, func(l leaf) bool { return l.Name == name })]
}

func (l leaf) commonName(node string) string { return strings.ReplaceAll(l.CN, nodeName, node) }

// certFile and keyFile are the paths of the pair: the same file for a pair that the kubelet rotates.
func (l leaf) certFile(d paths.Dirs) string { return l.file(d, ".crt") }
func (l leaf) keyFile(d paths.Dirs) string  { return l.file(d, ".key") }
func (l leaf) files(d paths.Dirs) (certFile, keyFile string) {
	return l.certFile(d), l.keyFile(d)
}

func (l leaf) file(d paths.Dirs, ext string) string {
	if l.Rotated {
		ext = "-current.pem"
	}
	return filepath.Join(l.Dir(d), l.Name+ext)
}

func (a authority) certFile(d paths.Dirs) string { return filepath.Join(d.PKI(), a.Name+".crt") }
func (a authority) keyFile(d paths.Dirs) string  { return filepath.Join(d.PKI(), a.Name+".key") }

// sans are the names and addresses that a certificate is valid for, sorted, each once.
type sans struct {
	DNS []string
	IPs []netip.Addr
}

func (s *sans) add(names ...string) {
	for _, name := range names {
		if addr, err := netip.ParseAddr(name); err == nil {
			s.addIPs(addr)
			continue
		}
		s.DNS = append(s.DNS, strings.ToLower(name))
	}
}

func (s *sans) addIPs(addrs ...netip.Addr) {
	for _, addr := range addrs {
		if addr.IsValid() && !addr.IsUnspecified() {
			s.IPs = append(s.IPs, addr.Unmap().WithZone(""))
		}
	}
}

func (s sans) sorted() sans {
	slices.Sort(s.DNS)
	slices.SortFunc(s.IPs, netip.Addr.Compare)
	return sans{DNS: slices.Compact(s.DNS), IPs: slices.Compact(s.IPs)}
}

func apiserverSANs(cfg config.Config) sans {
	s := kubeletSANs(cfg)
	s.add("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc."+cfg.Network.Domain,
		"localhost", "127.0.0.1", "::1")
	for _, cidr := range cfg.Network.ServiceCIDRs {
		s.addIPs(cidr.Masked().Addr().Next()) // the kubernetes Service
	}
	s.addIPs(cfg.API.Advertise, cfg.API.Bind)
	s.add(cfg.API.SANs...)
	return s.sorted()
}

func peerSANs(cfg config.Config) sans {
	var s sans
	s.add(cfg.Node.Name)
	s.addIPs(cfg.Node.IPs...)
	return s.sorted()
}

func kubeletSANs(cfg config.Config) sans {
	s := peerSANs(cfg)
	s.addIPs(cfg.Node.ExternalIPs...)
	return s.sorted()
}
