package config

import (
	"slices"
	"strings"
	"time"
)

// kind is how the text of a setting is parsed.
type kind int

const (
	text   kind = iota // one value
	list               // many: commas separate, the flag may be repeated
	lines              // many, one per flag or YAML item: commas belong to the value
	toggle             // true or false
)

// setting is a row of the table: the data for help, files, environment and documentation, and the field that the setting sets.
type setting struct {
	name  string // flag and file key; CORACLE_NAME_IN_CAPITALS is the variable
	short string
	kind  kind
	def   string   // default as a user types it
	note  string   // describes a default that depends on the host or on another setting
	arg   string   // name of the value in help; shells complete FILE and DIR
	words []string // all possible values, if that is a short list
	help  string
	group string
	// secret values are never shown.
	secret bool
	// alias is another environment variable of the same meaning.
	alias string
	// shared is the set of machines that take the setting from the cluster.
	shared scope
	// heldBy names the data of a cluster that depends on the setting, which then cannot be changed; "" if there is none.
	heldBy string
	// field is the field of Config that the setting sets.
	field binding
	// collected is the raw text; raw.table sets it.
	collected *value
}

// env returns the name of the setting's environment variable.
func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// Groups of flags, in the order of help.
const (
	groupFiles    = "Files and directories"
	groupNode     = "Node"
	groupNetwork  = "Network"
	groupAPI      = "Kubernetes API"
	groupStore    = "Datastore"
	groupCopies   = "Snapshots"
	groupJoin     = "Joining"
	groupUpstream = "Upstream components"
	groupRunning  = "Running"
)

var groups = [...]string{groupFiles, groupJoin, groupNode, groupNetwork, groupAPI, groupStore, groupCopies, groupUpstream, groupRunning}

// raw holds the text of all settings with its origin, by name.
type raw map[string]*value

// newRaw returns all settings with their defaults.
func newRaw() raw {
	r := raw{}
	for _, s := range allSettings() {
		v := &value{setting: s}
		if s.def != "" {
			v.items = s.split(s.def, origin{})
		}
		r[s.name] = v
	}
	return r
}

// allSettings lists the settings of servers and agents.
func allSettings() []setting { return append(nodeTable(), serverTable()...) }

// table lists the settings of a role, in the order of help, each with its value.
func (r raw) table(role Role) []setting {
	all := nodeTable()
	if role == Server {
		all = allSettings()
	}
	for i := range all {
		all[i].collected = r[all[i].name]
	}
	return all
}

// nodeTable lists the settings of servers and agents: a server is also a node.
func nodeTable() []setting {
	return []setting{
		{name: "config", short: "c", arg: "FILE", def: "/etc/coracle/config.yaml", group: groupFiles,
			help: "Settings, by the names of these flags; drop-ins in FILE.d/*.yaml are merged over it"},
		{name: "data-dir", short: "d", arg: "DIR", def: "/var/lib/coracle", group: groupFiles,
			help: "Everything that must survive a reboot"},
		{name: "run-dir", arg: "DIR", def: "/run/coracle", group: groupFiles,
			help: "Sockets and other things that need not survive a reboot; its path must be short"},
		{name: "kubelet-root-dir", arg: "DIR", def: "/var/lib/kubelet", group: groupFiles,
			help: "Where the kubelet keeps pods and volumes; CSI drivers expect the default"},
		{name: "kubelet-config-dir", arg: "DIR", note: "kubelet.d beside the config file", group: groupFiles,
			help: "Drop-ins (*.conf) of kind KubeletConfiguration, merged over coracle's"},
		{name: "containerd-config-dir", arg: "DIR", note: "containerd.d beside the config file", group: groupFiles,
			help: "Drop-ins (*.toml) for containerd, merged over coracle's"},

		{name: "node-name", arg: "NAME", note: "the host name in lower case", group: groupNode,
			help: "Name of this node in the cluster"},
		{name: "node-ip", kind: list, arg: "IP", note: "the source address of the default route", group: groupNode,
			help: "Address of this node in the cluster, one per IP family"},
		{name: "node-external-ip", kind: list, arg: "IP", group: groupNode,
			help: "Address at which others outside the cluster reach this node, one per IP family"},
		{name: "node-label", kind: list, arg: "KEY=VALUE", group: groupNode,
			help: "Label that the node registers with; a node that is registered keeps what it has"},
		{name: "node-taint", kind: list, arg: "KEY=VALUE:EFFECT", group: groupNode,
			help: "Taint that the node registers with; a node that is registered keeps what it has"},
		{name: "resolv-conf", arg: "FILE", note: "the host's, past a local stub resolver", group: groupNode,
			help: "Name servers for pods that use the host's, and for names outside the cluster"},
		{name: "disable-default-registry-endpoint", kind: toggle, def: "false", field: aBool(func(c *Config) *bool { return &c.Node.NoDefaultRegistry }), group: groupNode,
			help: "Pull images of registries that have mirrors in registries.yaml from those mirrors only"},

		{name: "server", short: "s", arg: "URL", group: groupJoin, alias: envPrefix + "URL",
			help: "Server of the cluster to join, as https://HOST:6443; a server without it begins a cluster"},
		{name: "token", short: "t", arg: "TOKEN", group: groupJoin, secret: true,
			help: "Token to join with, or for others to join with on the first server; --token-file keeps it out of process lists"},
		{name: "token-file", arg: "FILE", group: groupJoin,
			help: "File that holds the token"},
		{name: "replace-node", kind: toggle, def: "false", field: aBool(func(c *Config) *bool { return &c.Join.Replace }), group: groupJoin,
			help: "Take the place of another machine that has this node name; the token must allow it"},
		{name: "join-retry", kind: toggle, def: "true", field: aBool(func(c *Config) *bool { return &c.Join.Retry }), group: groupJoin,
			help: "Go on trying while no server answers (default true)"},

		{name: "lb-server-port", arg: "PORT", def: "6444", group: groupNetwork,
			help: "Port on loopback at which this node's parts reach the API of any server"},
		{name: "flannel-iface", arg: "INTERFACE", note: "the one that has the node IP", field: aText(func(c *Config) *string { return &c.Network.Iface }), group: groupNetwork,
			help: "Interface that carries traffic between the pods of different nodes"},

		{name: "kubelet-arg", kind: lines, arg: "KEY=VALUE", group: groupUpstream,
			help: "Flag for the kubelet, without dashes; wins over coracle's"},
		{name: "kube-proxy-arg", kind: lines, arg: "KEY=VALUE", group: groupUpstream,
			help: "Flag for kube-proxy, without dashes; wins over coracle's"},

		{name: "disable", kind: list, arg: "SERVICE", words: Addons(), field: decodedAs(func(c Config) string { return strings.Join(c.Disable, ",") }), group: groupRunning, shared: withAll,
			help: "Service of coracle to leave out: " + strings.Join(Addons(), ", ")},
		{name: "disable-helm-controller", kind: toggle, def: "false", group: groupRunning,
			help: "The same as --disable=helm-controller"},
		{name: "disable-kube-proxy", kind: toggle, def: "false", group: groupRunning,
			help: "The same as --disable=kube-proxy"},
		{name: "disable-network-policy", kind: toggle, def: "false", group: groupRunning,
			help: "The same as --disable=network-policy"},
		{name: "drain-on-stop", kind: toggle, def: "false", field: aBool(func(c *Config) *bool { return &c.DrainOnStop }), group: groupRunning,
			help: "Stop the pods too when coracle stops"},
		{name: "pod-runtime", arg: "WORD", words: []string{string(SharedShims), string(ClassicShims)}, def: string(SharedShims), group: groupRunning,
			help: "shared: twenty new pods at most share a containerd shim; classic: each has one, and a pause container"},
		{name: "log-level", kind: list, arg: "LEVEL", words: levels[:], def: "info", group: groupRunning,
			help: "error, warn, info, debug or trace; per component as in info,kubelet=debug"},
		{name: "log-format", arg: "FORMAT", words: []string{"text", "json"}, def: "text", group: groupRunning,
			help: "text or json"},
		{name: "debug", kind: toggle, def: "false", group: groupRunning,
			help: "Short for --log-level=debug"},
	}
}

// serverTable lists the settings that only servers have.
func serverTable() []setting {
	return append(slices.Concat(snapshotTable(), acmeTable(), gatewayTable()), []setting{
		{name: "agent-token", arg: "TOKEN", group: groupJoin, secret: true,
			help: "Token for agents to join with, which servers cannot use; --agent-token-file keeps it out of process lists"},
		{name: "agent-token-file", arg: "FILE", group: groupJoin,
			help: "File that holds the agents' token"},

		{name: "default-local-storage-path", arg: "DIR", note: "storage in the data directory", group: groupFiles, shared: withServers,
			help: "Where nodes keep the volumes of StorageClass local-path, unless ConfigMap local-path-config says otherwise"},

		{name: "cluster-cidr", kind: list, arg: "CIDR", def: "10.42.0.0/16", field: decodedAs(func(c Config) string { return joined(c.Network.ClusterCIDRs) }), group: groupNetwork, shared: withAll, heldBy: "nodes and pods have addresses from it",
			help: "Addresses of pods, one range per IP family, the preferred family first"},
		{name: "service-cidr", kind: list, arg: "CIDR", def: "10.43.0.0/16", field: decodedAs(func(c Config) string { return joined(c.Network.ServiceCIDRs) }), group: groupNetwork, shared: withAll, heldBy: "Services have addresses from it",
			help: "Addresses of Services, one range per IP family in the order of --cluster-cidr"},
		{name: "cluster-dns", kind: list, arg: "IP", note: "the tenth address of each service CIDR", field: decodedAs(func(c Config) string { return joined(c.Network.DNS) }), group: groupNetwork, shared: withAll,
			help: "Address of the DNS Service, one per IP family"},
		{name: "cluster-domain", arg: "DOMAIN", def: "cluster.local", field: decodedAs(func(c Config) string { return c.Network.Domain }), group: groupNetwork, shared: withAll, heldBy: "tokens and pods contain names under it",
			help: "Domain under which Services have names"},
		{name: "flannel-backend", arg: "BACKEND", words: []string{string(VXLAN), string(HostGW), string(WireGuard), string(BackendNone)}, def: string(VXLAN), field: decodedAs(func(c Config) string { return string(c.Network.Backend) }), group: groupNetwork, shared: withAll,
			help: "How pods of different nodes reach each other: vxlan, host-gw, wireguard-native (encrypted), or none to bring another CNI plugin"},
		{name: "service-node-port-range", arg: "FIRST-LAST", def: "30000-32767", field: decodedAs(func(c Config) string { return c.Network.NodePorts }), group: groupNetwork, shared: withAll,
			help: "Ports for Services of type NodePort"},

		{name: "bind-address", arg: "IP", note: "all addresses", group: groupAPI,
			help: "Address that the API listens on"},
		{name: "advertise-address", arg: "IP", note: "the node's first IP", group: groupAPI,
			help: "Address of the API that the cluster is told"},
		{name: "https-listen-port", arg: "PORT", def: "6443", group: groupAPI,
			help: "Port that the API listens on"},
		{name: "tls-san", kind: list, arg: "NAME|IP", group: groupAPI,
			help: "Further host name or address by which clients reach the API, for its certificate"},
		{name: "vip", kind: list, arg: "IP", field: decodedAs(func(c Config) string { return joined(c.API.VIPs) }), group: groupAPI, shared: withServers,
			help: "Address of the API that one of the servers has at a time, one per IP family; no machine may have it"},
		{name: "lb-pool", kind: list, arg: "[NAME=]RANGE", field: decodedAs(poolsText), group: groupNetwork, shared: withServers,
			help: "Addresses for Services of type LoadBalancer, as FIRST-LAST or CIDR; with NAME:manual=, for Services that ask for them; metallb stands for MetalLB's IPAddressPools"},
		{name: "write-kubeconfig", short: "o", arg: "FILE", note: "kubeconfig.yaml beside the config file", group: groupAPI, alias: envPrefix + "KUBECONFIG_OUTPUT",
			help: "Where to write the administrator's kubeconfig"},
		{name: "write-kubeconfig-mode", arg: "MODE", def: "0600", group: groupAPI, alias: envPrefix + "KUBECONFIG_MODE",
			help: "Permissions of that file, octal"},
		{name: "enable-admission-plugins", kind: list, arg: "PLUGIN", field: aList(func(c *Config) *[]string { return &c.API.EnableAdmission }), group: groupAPI, shared: withServers,
			help: "Admission plugin to use besides the default ones"},
		{name: "disable-admission-plugins", kind: list, arg: "PLUGIN", field: aList(func(c *Config) *[]string { return &c.API.DisableAdmission }), group: groupAPI, shared: withServers,
			help: "Admission plugin of the default ones to leave out"},
		{name: "pod-eviction-timeout", arg: "DURATION", def: "30s", field: aDuration(func(c *Config) *time.Duration { return &c.API.EvictAfter }), group: groupAPI, shared: withServers,
			help: "How long pods stay bound to an unreachable node before they are replaced on another; a pod's own tolerations win"},
		{name: "admission-control-config-file", arg: "FILE", field: aFile(func(c *Config) *string { return &c.API.AdmissionConfig }), group: groupAPI, shared: contentWithServers,
			help: "Settings of admission plugins, of kind AdmissionConfiguration"},
		{name: "encryption-provider-config", arg: "FILE", field: aFile(func(c *Config) *string { return &c.API.EncryptionConfig }), group: groupAPI, shared: contentWithServers,
			help: "How Secrets and others are encrypted in etcd, of kind EncryptionConfiguration"},
		{name: "secrets-encryption-passphrase-file", arg: "FILE", field: aLaterFile(func(c *Config) *string { return &c.API.SecretsPassphrase }), group: groupAPI,
			help: "A file with a passphrase that is needed, besides the disk of a server, to read Secrets; a credential of systemd, for example"},
		{name: "certificate-life", arg: "DURATION", def: "8760h", field: aLife(func(c *Config) *time.Duration { return &c.CertificateLife }), group: groupAPI, shared: withAll,
			help: "How long certificates of servers and nodes are valid, from 3m to 8760h; they are renewed after two thirds of it, while everything runs"},
		{name: "audit", kind: toggle, def: "true", field: aBool(func(c *Config) *bool { return &c.API.Audit }), group: groupAPI, shared: withServers,
			help: "Keep a log of who changes what, reads Secrets or enters pods, for coracle audit (default true)"},
		{name: "audit-policy-file", arg: "FILE", field: aFile(func(c *Config) *string { return &c.API.AuditPolicy }), group: groupAPI, shared: contentWithServers,
			help: "What is in that log instead, of kind Policy"},
		{name: "profile", arg: "PROFILE", words: []string{string(ProfileStandard), string(ProfileCIS)}, def: string(ProfileStandard), field: decodedAs(func(c Config) string { return string(c.Security.Profile) }), group: groupAPI, shared: withAll,
			help: "cis: what the CIS Kubernetes Benchmark leaves to administrators, as docs/hardening.md lists it"},
		{name: HardenedKey, kind: toggle, note: "true in clusters that this version or a later one began", field: aBool(func(c *Config) *bool { return &c.Security.Hardened }), group: groupAPI, shared: withAll,
			help: "Confine pods by seccomp and a limit of processes, let tokens end in time, accept strong ciphers only, and warn of pods outside of the level baseline"},
		{name: "pod-security", arg: "LEVEL", words: []string{string(PodPrivileged), string(PodBaseline), string(PodRestricted)}, note: "privileged, and restricted with --profile=cis", field: decodedAs(func(c Config) string { return string(c.Security.PodSecurity) }), group: groupAPI, shared: withServers,
			help: "Pod Security Standard that namespaces without a label of their own enforce"},
		{name: "helm-controller-namespaces", kind: list, arg: "NAMESPACE", note: "all namespaces", field: aList(func(c *Config) *[]string { return &c.API.HelmNamespaces }), group: groupAPI, shared: withServers,
			help: "Namespace whose HelmCharts are applied as an administrator; those in others need spec.serviceAccountName"},
		{name: "kube-scheduler-config", arg: "FILE", field: aFile(func(c *Config) *string { return &c.API.SchedulerConfig }), group: groupUpstream, shared: contentWithServers,
			help: "Profiles of the scheduler, of kind KubeSchedulerConfiguration"},

		{name: "datastore-endpoint", kind: list, arg: "URL", field: decodedAs(func(c Config) string { return strings.Join(c.Datastore.Endpoints, ",") }), group: groupStore, shared: withServers,
			help: "etcd that keeps the cluster's data in place of coracle's own, as https://HOST:2379 or unix:///PATH"},
		{name: "datastore-cafile", arg: "FILE", field: decodedAs(func(c Config) string { return c.Datastore.CAFile }), group: groupStore, shared: contentWithServers,
			help: "CA certificate of that etcd"},
		{name: "datastore-certfile", arg: "FILE", field: decodedAs(func(c Config) string { return c.Datastore.CertFile }), group: groupStore, shared: contentWithServers,
			help: "Client certificate for that etcd"},
		{name: "datastore-keyfile", arg: "FILE", field: decodedAs(func(c Config) string { return c.Datastore.KeyFile }), group: groupStore, shared: contentWithServers,
			help: "Key of the client certificate"},
		{name: "datastore-prefix", arg: "PREFIX", def: "/registry", field: decodedAs(func(c Config) string { return c.Datastore.Prefix }), group: groupStore, shared: withServers,
			help: "What the cluster's keys in that etcd begin with"},

		{name: "kube-apiserver-arg", kind: lines, arg: "KEY=VALUE", group: groupUpstream,
			help: "Flag for kube-apiserver, without dashes; wins over coracle's"},
		{name: "kube-controller-manager-arg", kind: lines, arg: "KEY=VALUE", group: groupUpstream,
			help: "Flag for kube-controller-manager, without dashes; wins over coracle's"},
		{name: "kube-scheduler-arg", kind: lines, arg: "KEY=VALUE", group: groupUpstream,
			help: "Flag for kube-scheduler, without dashes; wins over coracle's"},
		{name: "etcd-arg", kind: lines, arg: "KEY=VALUE", group: groupUpstream,
			help: "Flag for etcd, without dashes; wins over coracle's"},

		{name: "ephemeral", kind: toggle, def: "false", group: groupRunning,
			help: "Keep the whole cluster in memory, and remove it with its pods and everything else when coracle stops"},
		{name: "ttl", arg: "DURATION", def: "0s", group: groupRunning,
			help: "After how long an ephemeral cluster removes itself; 0s is never"},
	}...)
}
