// Package paths names every file and directory that coracle makes. Other packages do not build such paths themselves.
package paths

import (
	"os"
	"path/filepath"
)

// Exists reports whether there is anything at path, even a dangling symbolic link.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Dirs are the root directories of one coracle on a machine.
type Dirs struct {
	Data    string `json:"data"`    // survives reboots; /var/lib/coracle
	Run     string `json:"run"`     // gone after a reboot; /run/coracle. Short: it holds sockets
	Config  string `json:"config"`  // /etc/coracle
	Kubelet string `json:"kubelet"` // the kubelet's root, where CSI drivers expect it; /var/lib/kubelet
	// Copies holds the copies of root's files that the control plane reads as another user; "" in all other processes.
	Copies string `json:"-"`
}

// Default are the roots that a plain `coracle server` uses.
func Default() Dirs {
	return Dirs{Data: "/var/lib/coracle", Run: "/run/coracle", Config: "/etc/coracle", Kubelet: "/var/lib/kubelet"}
}

func (d Dirs) data(elem ...string) string { return filepath.Join(append([]string{d.Data}, elem...)...) }
func (d Dirs) run(elem ...string) string  { return filepath.Join(append([]string{d.Run}, elem...)...) }

// readable is a file of root's that the control plane reads.
func (d Dirs) readable(elem ...string) string {
	if d.Copies != "" {
		return filepath.Join(append([]string{d.Copies}, elem...)...)
	}
	return d.data(elem...)
}

// Lock is locked (flock) by the front while it runs: only one coracle uses a data directory.
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

// PKI holds the cluster's keys and certificates, laid out and named as kubeadm does.
func (d Dirs) PKI() string { return d.readable("server", "pki") }

// Etcd is the data directory of the embedded etcd.
func (d Dirs) Etcd() string { return d.data("server", "etcd") }

// DataVersion has the version that has used the server's data last.
func (d Dirs) DataVersion() string { return d.data("server", "version") }

// ResetRequest asks etcd to become a cluster of one member at its next start.
func (d Dirs) ResetRequest() string { return d.readable("server", "reset-quorum.json") }

// RekeyRequest describes how a new cluster differs from the one whose etcd data it has copied. It exists until the data is changed.
func (d Dirs) RekeyRequest() string { return d.readable("server", "refound.json") }

// Snapshots holds copies of etcd's data.
func (d Dirs) Snapshots() string { return d.data("server", "snapshots") }

// LastSnapshot is the note of the last attempt to make one.
func (d Dirs) LastSnapshot() string { return d.data("server", "snapshots", "last.json") }

// ServerCluster stores what a server knows of its cluster: the shared settings and the API servers.
func (d Dirs) ServerCluster() string { return d.readable("server", "cluster.json") }

// SharedFile is a copy of a file that the cluster's servers share, by the name of its flag.
func (d Dirs) SharedFile(flag string) string { return d.data("server", "shared", flag) }

// Token is the configured token with which other machines join.
func (d Dirs) Token() string { return d.readable("server", "token") }

// AgentToken is the configured token with which only agents join.
func (d Dirs) AgentToken() string { return d.readable("server", "agent-token") }

// ServerConfig holds generated configuration of the control plane (kubeconfigs, component configuration files).
func (d Dirs) ServerConfig(name string) string { return d.readable("server", "etc", name) }

// VolumePlugins holds FlexVolume plugins for the control plane. Upstream's default is in /usr, where coracle does not write.
func (d Dirs) VolumePlugins() string { return d.data("server", "volume-plugins") }

// Authorities is the mark with the cluster's authorities that the control plane has the front write.
func (d Dirs) Authorities() string { return d.ControlPlane("authorities.json") }

// OwnNodes lists the present and former Node objects of a server's machine.
func (d Dirs) OwnNodes() string { return d.ControlPlane("own-nodes.json") }

// Manifests holds the user's manifests, applied while coracle runs.
func (d Dirs) Manifests() string { return d.data("manifests") }

// Charts holds the user's packed Helm charts.
func (d Dirs) Charts() string { return d.data("charts") }

// Images holds the user's image archives, imported at start.
func (d Dirs) Images() string { return d.data("images") }

// LocalVolumes is the default directory of local volumes.
func (d Dirs) LocalVolumes() string { return d.data("storage") }

// NodeConfig holds the generated configuration of the node process.
func (d Dirs) NodeConfig(name string) string { return d.data("node", "etc", name) }

// NameServer is all that the node's name server sees of the machine's files: copies of coracle's, and the user's.
func (d Dirs) NameServer() string { return d.data("node", "dns") }

// NodePKI holds the node's certificates; the kubelet rotates its own in here.
func (d Dirs) NodePKI() string { return d.readable("node", "pki") }

// Cluster stores what an agent knows of its cluster, for a start without a server.
func (d Dirs) Cluster() string { return d.data("node", "cluster.json") }

// Servers stores the API servers that a node's balancer knows.
func (d Dirs) Servers() string { return d.readable("node", "servers.json") }

// NodeCA is the node's copy of the cluster's CA certificate.
func (d Dirs) NodeCA() string { return filepath.Join(d.NodePKI(), "ca.crt") }

// Containerd is containerd's root: content, snapshots, metadata.
func (d Dirs) Containerd() string { return d.data("node", "containerd") }

// ContainerdDatabases are containerd's databases that outlive a boot.
func (d Dirs) ContainerdDatabases() []string {
	snapshots, _ := filepath.Glob(filepath.Join(d.Containerd(), "io.containerd.snapshotter.v1.*", "metadata.db"))
	return append(snapshots, filepath.Join(d.Containerd(), "io.containerd.metadata.v1.bolt", "meta.db"))
}

// ImageIndex lists the image archives that have been imported.
func (d Dirs) ImageIndex() string { return d.data("node", "images.json") }

// ImagesCompared holds the boot in which the payload's images were last compared with what containerd has.
func (d Dirs) ImagesCompared() string { return d.run("images-compared") }

// PayloadCompared holds the payload and the boot in which its files were last compared with their checksums.
func (d Dirs) PayloadCompared() string { return d.run("payload-compared") }

// StaticPods holds manifests of pods that the kubelet runs by itself.
func (d Dirs) StaticPods() string { return d.data("node", "static-pods") }

// RegistryHosts holds containerd's hosts.toml files for registries.
func (d Dirs) RegistryHosts() string { return filepath.Join(d.Config, "certs.d") }

// Registries is the file with the mirrors and credentials of registries, in the format of k3s.
func (d Dirs) Registries() string {
	if d.Copies != "" {
		return d.readable("registries.yaml")
	}
	return filepath.Join(d.Config, "registries.yaml")
}

// CNIState holds the state of CNI plugins: address leases.
func (d Dirs) CNIState() string { return d.data("node", "cni") }

// RunLock is locked like Lock: only one coracle uses a run directory.
func (d Dirs) RunLock() string { return d.run("lock") }

// Resolved is the front's resolved configuration for its child processes.
func (d Dirs) Resolved() string { return d.run("config.json") }

// State is the state file of a process ("front", "control-plane", "node"), which status and trace read.
func (d Dirs) State(process string) string { return d.run("state", process+".json") }

// Settings is the file with what the parts of a process were started with.
func (d Dirs) Settings(process string) string { return d.run("state", process+"-settings.json") }

// Gateway is the directory of the gateway's process, see package gateway.
func (d Dirs) Gateway() string { return d.run("gateway") }

// GatewaySocket is the socket on which the front listens to the gateway's process.
func (d Dirs) GatewaySocket() string { return d.run("notify-gateway.sock") }

// NotifySocket is the socket on which the front listens to its child processes.
func (d Dirs) NotifySocket() string { return d.run("notify.sock") }

// EtcdSocket is etcd's client socket.
func (d Dirs) EtcdSocket() string { return d.ControlPlaneRun("etcd.sock") }

// ContainerdSocket is containerd's and CRI's socket.
func (d Dirs) ContainerdSocket() string { return d.run("containerd", "containerd.sock") }

// ContainerdState is containerd's state directory; shims keep their bundles in it.
func (d Dirs) ContainerdState() string { return d.run("containerd", "state") }

// ShimSockets holds the sockets of containers' shims. The limit for its path is 42 bytes.
func (d Dirs) ShimSockets() string { return d.run("s") }

// Runc is runc's state directory.
func (d Dirs) Runc() string { return d.run("runc") }

// Subnet is the node's pod subnet as flannel leased it, read by the CNI plugin.
func (d Dirs) Subnet() string { return d.run("subnet.json") }

// WireGuardKey is the node's key for the backend wireguard-native, which does not survive a reboot.
func (d Dirs) WireGuardKey() string { return d.run("wireguard.key") }

// PolicySocket receives the CNI plugin's events about pods, so that network policies are in force before a pod's first
// packet.
func (d Dirs) PolicySocket() string { return d.run("policy.sock") }

// PolicyRecall lists the namespaces with network policies, for a start without an API server.
func (d Dirs) PolicyRecall() string { return d.NodeConfig("policies.json") }

// CNIConfig is the CNI configuration list, which coracle writes unless the pod network is the user's.
func (d Dirs) CNIConfig() string { return "/etc/cni/net.d/10-coracle.conflist" }

// CNIPlugins holds the payload's CNI plugins by type. They are not in Bin, because one has the name of iproute2's program
// bridge.
func (d Dirs) CNIPlugins() string { return filepath.Join(d.Bin(), "cni") }

// CNIBin holds the user's own CNI plugins.
func (d Dirs) CNIBin() string { return "/opt/cni/bin" }
