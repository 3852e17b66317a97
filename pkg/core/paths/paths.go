// Package paths names every file and directory that coracle makes. Nobody else joins path names of ours, and
// reset walks this list.
package paths

import (
	"os"
	"path/filepath"
)

// Exists reports whether there is anything at path, be it a symbolic link to nothing.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Dirs are the roots of what one coracle keeps on a machine.
type Dirs struct {
	Data    string `json:"data"`    // survives reboots; /var/lib/coracle
	Run     string `json:"run"`     // gone after a reboot; /run/coracle. Short: it holds sockets
	Config  string `json:"config"`  // /etc/coracle
	Kubelet string `json:"kubelet"` // the kubelet's root, where CSI drivers expect it; /var/lib/kubelet
}

// Default are the roots that a plain `coracle server` uses.
func Default() Dirs {
	return Dirs{Data: "/var/lib/coracle", Run: "/run/coracle", Config: "/etc/coracle", Kubelet: "/var/lib/kubelet"}
}

func (d Dirs) data(elem ...string) string { return filepath.Join(append([]string{d.Data}, elem...)...) }
func (d Dirs) run(elem ...string) string  { return filepath.Join(append([]string{d.Run}, elem...)...) }

// Lock is held (flock) by the front for as long as it lives: one coracle per data directory.
func (d Dirs) Lock() string { return d.data("lock") }

// Payloads holds one directory per unpacked payload, named by its SHA-256.
func (d Dirs) Payloads() string { return d.data("data") }

// Bin is the stable symlink to the payload in use. Shims, runc and CNI are always addressed through it.
func (d Dirs) Bin() string { return d.data("bin") }

// Tool is an executable of the payload: coracle-core, runc, containerd-shim-runc-v2, coracle-cni, nft, busybox.
func (d Dirs) Tool(name string) string { return filepath.Join(d.Bin(), name) }

// BusyboxLinks holds a name for each tool of busybox that a bare host may lack. It belongs at the end of PATH.
func (d Dirs) BusyboxLinks() string { return filepath.Join(d.Bin(), "busybox.d") }

// SystemImages holds the image archives of the payload.
func (d Dirs) SystemImages() string { return filepath.Join(d.Bin(), "images") }

// Ephemeral marks the data of a server that keeps nothing.
func (d Dirs) Ephemeral() string { return d.data("ephemeral") }

// EphemeralKubelet is what such a server's kubelet root is, in the memory that its data is in.
func (d Dirs) EphemeralKubelet() string { return d.data("kubelet") }

// Ledger is the list of what coracle made outside its own directories.
func (d Dirs) Ledger() string { return d.data("ledger.json") }

// LogFile is the newest file of the ring that keeps the last lines of log.
func (d Dirs) LogFile() string { return d.data("log", "coracle.log") }

// AuditLog is kube-apiserver's audit log, written if there is an audit policy.
func (d Dirs) AuditLog() string { return d.data("log", "audit.log") }

// PKI holds the cluster's keys and certificates, laid out and named as kubeadm does.
func (d Dirs) PKI() string { return d.data("server", "pki") }

// Etcd is the data directory of the embedded etcd.
func (d Dirs) Etcd() string { return d.data("server", "etcd") }

// ResetRequest asks etcd to become a cluster of one member at its next start.
func (d Dirs) ResetRequest() string { return d.data("server", "reset-quorum.json") }

// RekeyRequest exists while etcd's data is an unchanged copy of another cluster's: it says how the new cluster differs.
func (d Dirs) RekeyRequest() string { return d.data("server", "refound.json") }

// Snapshots holds copies of etcd's data.
func (d Dirs) Snapshots() string { return d.data("server", "snapshots") }

// ServerCluster is what a server remembers of its cluster: the settings that it was made with, and who serves it.
func (d Dirs) ServerCluster() string { return d.data("server", "cluster.json") }

// SharedFile is a file that a server took from the cluster when it joined, by the flag that names such a file.
func (d Dirs) SharedFile(flag string) string { return d.data("server", "shared", flag) }

// Token is the token that a server was told to let others join with.
func (d Dirs) Token() string { return d.data("server", "token") }

// AgentToken is the token that a server was told to let agents join with.
func (d Dirs) AgentToken() string { return d.data("server", "agent-token") }

// ServerConfig holds generated configuration of the control plane (kubeconfigs, component configuration files).
func (d Dirs) ServerConfig(name string) string { return d.data("server", "etc", name) }

// VolumePlugins holds FlexVolume plugins for the control plane. Upstream's place is in /usr, which is not ours.
func (d Dirs) VolumePlugins() string { return d.data("server", "volume-plugins") }

// OwnNodes is where a server remembers which Node objects are or were its machine.
func (d Dirs) OwnNodes() string { return d.data("server", "own-nodes.json") }

// Manifests holds the user's manifests, applied while coracle runs.
func (d Dirs) Manifests() string { return d.data("manifests") }

// Charts holds the user's packed Helm charts.
func (d Dirs) Charts() string { return d.data("charts") }

// Images holds the user's image archives, imported at start.
func (d Dirs) Images() string { return d.data("images") }

// LocalVolumes holds the folders of local volumes, unless people chose another place for them.
func (d Dirs) LocalVolumes() string { return d.data("storage") }

// NodeConfig holds the generated configuration of the node process.
func (d Dirs) NodeConfig(name string) string { return d.data("node", "etc", name) }

// NodePKI holds the node's certificates; the kubelet rotates its own in here.
func (d Dirs) NodePKI() string { return d.data("node", "pki") }

// Cluster is what an agent remembers of its cluster, for a start without a server.
func (d Dirs) Cluster() string { return d.data("node", "cluster.json") }

// Servers remembers the API servers that a node's balancer knows.
func (d Dirs) Servers() string { return d.data("node", "servers.json") }

// NodeCA is the cluster's CA certificate as the node knows it.
func (d Dirs) NodeCA() string { return filepath.Join(d.NodePKI(), "ca.crt") }

// Containerd is containerd's root: content, snapshots, metadata.
func (d Dirs) Containerd() string { return d.data("node", "containerd") }

// ImageIndex remembers which image archives have been imported.
func (d Dirs) ImageIndex() string { return d.data("node", "images.json") }

// StaticPods holds manifests of pods that the kubelet runs by itself.
func (d Dirs) StaticPods() string { return d.data("node", "static-pods") }

// RegistryHosts holds hosts.toml files that say how registries are reached.
func (d Dirs) RegistryHosts() string { return filepath.Join(d.Config, "certs.d") }

// Registries is the file that says which mirrors and credentials registries have, in the format of k3s.
func (d Dirs) Registries() string { return filepath.Join(d.Config, "registries.yaml") }

// CNIState holds what CNI plugins remember: address leases.
func (d Dirs) CNIState() string { return d.data("node", "cni") }

// RunLock is held like Lock: one coracle per run directory, whatever its data directory.
func (d Dirs) RunLock() string { return d.run("lock") }

// Resolved is the front's resolved configuration for its child processes.
func (d Dirs) Resolved() string { return d.run("config.json") }

// State is where a process of ours ("front", "control-plane", "node") writes what it is doing, for status and trace.
func (d Dirs) State(process string) string { return d.run("state", process+".json") }

// NotifySocket is the socket on which the front listens to its child processes.
func (d Dirs) NotifySocket() string { return d.run("notify.sock") }

// EtcdSocket is etcd's client socket.
func (d Dirs) EtcdSocket() string { return d.run("etcd.sock") }

// ContainerdSocket is containerd's and CRI's socket.
func (d Dirs) ContainerdSocket() string { return d.run("containerd", "containerd.sock") }

// ContainerdState is containerd's state directory; shims keep their bundles in it.
func (d Dirs) ContainerdState() string { return d.run("containerd", "state") }

// ShimSockets holds the sockets of the containers' shims. Short: 42 bytes at most.
func (d Dirs) ShimSockets() string { return d.run("s") }

// Runc is runc's state directory.
func (d Dirs) Runc() string { return d.run("runc") }

// Subnet is the node's pod subnet as flannel leased it, read by the CNI plugin.
func (d Dirs) Subnet() string { return d.run("subnet.json") }

// PolicySocket is where the CNI plugin tells of pods that come and go, so that network policies hold from their first
// packet on.
func (d Dirs) PolicySocket() string { return d.run("policy.sock") }

// PolicyRecall remembers which namespaces have network policies, for a start without an API.
func (d Dirs) PolicyRecall() string { return d.NodeConfig("policies.json") }

// CNIConfig is the CNI configuration list that coracle writes when it does the pod network itself.
func (d Dirs) CNIConfig() string { return "/etc/cni/net.d/10-coracle.conflist" }

// CNIPlugins holds the payload's CNI plugins by type. They are not in Bin itself: one is called bridge, as a tool of
// iproute2 is.
func (d Dirs) CNIPlugins() string { return filepath.Join(d.Bin(), "cni") }

// CNIBin is where plugins that the user brings are looked for.
func (d Dirs) CNIBin() string { return "/opt/cni/bin" }
