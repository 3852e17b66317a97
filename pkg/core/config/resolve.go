package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Resolve reads flags (args), environment (as of os.Environ) and files, fills in defaults, and checks everything.
// Flags override the environment, which overrides drop-ins, which override the file. Resolve writes nothing and needs no
// privilege. The error has a line for every mistake, with its place; for --help it is pflag.ErrHelp.
//
// A machine that has joined a cluster uses the stored settings of the cluster. Before a machine joins, the settings are not
// known and Network is empty; ResolveIn resolves the configuration again when they are known.
func Resolve(role Role, args, environ []string) (Config, error) {
	cfg, _, err := resolve(role, args, environ, thisHost(), nil)
	return cfg, err
}

// ResolveIn is Resolve with the settings of the cluster, for a machine that joins. It is an error if the machine's own settings
// contradict them.
func ResolveIn(role Role, args, environ []string, known Known) (Config, error) {
	cfg, _, err := resolve(role, args, environ, thisHost(), &known)
	return cfg, err
}

func resolve(role Role, args, environ []string, h host, known *Known) (Config, raw, error) {
	var p problems
	r := newRaw()
	if err := r.read(role, args, environ, h, &p); err != nil {
		return Config{}, r, err
	}
	remarks := r.translate()
	d := &decoder{problems: &p, host: h, role: role}
	dirs := d.dirs(r)
	d.nodeCert = filepath.Join(dirs.NodePKI(), "node.crt")
	if known == nil {
		remembered := h.remembered(role, dirs)
		known = &remembered
	}
	r.inherit(role, dirs, *known, &p)
	r.keepHardened(role, dirs, h, *known)
	d.settled = known.Settings != nil || role == Server && r["server"].one().text == ""
	cfg := d.config(r, dirs)
	for _, s := range r.table(role) {
		for _, it := range s.collected.items {
			if !utf8.ValidString(it.text) { // the child processes get the configuration as JSON, which would change it
				p.add("%s: %q is not UTF-8", it.label(s), it.text)
			}
		}
		if s.field.decode != nil {
			s.field.decode(d, s.collected, &cfg)
		}
	}
	cfg.Remarks = remarks
	cfg.Join.Joined, cfg.Join.Servers = known.Joined, known.Servers
	if role == Agent && !known.Joined && cfg.Join.Server == "" && len(r["server"].items) == 0 {
		p.add("%s: an agent needs a server to join, as in --server https://HOST:6443", r["server"].label())
	}
	return cfg, r, p.err()
}

// decoder parses the text of settings and collects errors.
type decoder struct {
	*problems
	host host
	role Role
	// nodeCert is the file of the node's certificate, from the last start.
	nodeCert string
	// settled is true if the cluster's settings are known. They are not before a machine joins.
	settled bool
}

func (d *decoder) dirs(r raw) paths.Dirs {
	return paths.Dirs{
		Data:    d.path(r["data-dir"]),
		Run:     d.path(r["run-dir"]),
		Config:  filepath.Dir(d.path(r["config"])),
		Kubelet: d.path(r["kubelet-root-dir"]),
	}
}

// config decodes the settings that depend on others, or that others depend on.
func (d *decoder) config(r raw, dirs paths.Dirs) Config {
	dir := dirs.Config
	cfg := Config{
		Role:    d.role,
		Dirs:    dirs,
		Log:     d.log(r),
		Disable: d.oneOf(r["disable"]),
		Args:    d.args(r),
	}
	if d.settled {
		cfg.Network = d.network(r)
	}
	cfg.Node = d.node(r, dir, cfg.Network)
	cfg.Join = d.join(r)
	cfg.Security = d.security(r)
	d.checkDirs(r, cfg)
	d.checkOverlaps(r, cfg)
	if d.role == Agent {
		return cfg
	}
	cfg.API = d.api(r, dir, cfg.Node)
	cfg.API.VIPs = d.vips(r, cfg)
	for _, vip := range cfg.API.VIPs {
		if !slices.Contains(cfg.API.SANs, vip.String()) {
			cfg.API.SANs = append(cfg.API.SANs, vip.String())
		}
	}
	cfg.Network.Pools, cfg.Network.MetalLB = d.pools(r, cfg), slices.Contains(r["lb-pool"].texts(), metalLB)
	cfg.API.LocalStorage = d.pathOr(r["default-local-storage-path"], dirs.LocalVolumes())
	cfg.Datastore = d.datastore(r)
	cfg.Ephemeral = d.ephemeral(r, cfg)
	cfg.Snapshots.Dir = d.pathOr(r["etcd-snapshot-dir"], dirs.Snapshots())
	cfg.Snapshots.S3.HasKeys = cfg.Snapshots.S3.AccessKey != ""
	d.checkPorts(r, cfg)
	return cfg
}

func (d *decoder) network(r raw) Network {
	n := Network{
		ClusterCIDRs: d.prefixes(r["cluster-cidr"]),
		ServiceCIDRs: d.prefixes(r["service-cidr"]),
		DNS:          d.addrs(r["cluster-dns"]),
		Domain:       d.domain(r["cluster-domain"]),
		Backend:      Backend(d.one(r["flannel-backend"])),
		NodePorts:    d.portRange(r["service-node-port-range"]),
	}
	d.checkFamilies(r, n)
	d.checkSizes(r)
	if len(n.DNS) == 0 {
		n.DNS = d.defaultDNS(r["cluster-dns"], n.ServiceCIDRs)
	} else {
		d.checkDNS(r["cluster-dns"], n)
	}
	return n
}

func (d *decoder) node(r raw, dir string, n Network) Node {
	name := d.nodeName(r["node-name"])
	ips, sources := d.nodeIPs(r, n)
	return Node{
		Name:                name,
		IPs:                 ips,
		Sources:             sources,
		ExternalIPs:         d.externalIPs(r, n),
		Labels:              d.labels(r["node-label"], name),
		Taints:              d.taints(r["node-taint"]),
		KubeletConfigDir:    d.pathOr(r["kubelet-config-dir"], filepath.Join(dir, "kubelet.d")),
		ContainerdConfigDir: d.pathOr(r["containerd-config-dir"], filepath.Join(dir, "containerd.d")),
		ResolvConf:          d.resolvConf(r["resolv-conf"]),
		BalancerPort:        d.port(r["lb-server-port"]),
		PodRuntime:          PodRuntime(d.one(r["pod-runtime"])),
	}
}

func (d *decoder) api(r raw, dir string, node Node) API {
	bind := d.bind(r["bind-address"], node.IPs)
	follows := r["advertise-address"].one().text == "" && unusable(bind) != ""
	return API{
		Bind:           bind,
		AdvertiseNode:  follows,
		Advertise:      d.advertise(r["advertise-address"], bind, node.IPs),
		Port:           d.port(r["https-listen-port"]),
		SANs:           d.sans(r["tls-san"]),
		KubeconfigPath: d.pathOr(r["write-kubeconfig"], filepath.Join(dir, "kubeconfig.yaml")),
		KubeconfigMode: d.mode(r["write-kubeconfig-mode"]),
	}
}

// args returns the pass-through flags by component.
func (d *decoder) args(r raw) map[string][]string {
	out := map[string][]string{}
	for _, v := range []*value{r["etcd-arg"], r["kube-apiserver-arg"], r["kube-controller-manager-arg"], r["kube-scheduler-arg"], r["kubelet-arg"], r["kube-proxy-arg"]} {
		if texts := d.passThrough(v); len(texts) > 0 {
			out[strings.TrimSuffix(v.setting.name, "-arg")] = texts
		}
	}
	return out
}

// Load reads the resolved configuration of an earlier start, which the front writes for its child processes.
func Load(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading the resolved configuration: %w", err)
	}
	var cfg Config
	if err := json.Unmarshal(data, &cfg); err != nil {
		return Config{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return cfg, nil
}

// Next returns the configuration of a start without flags. If that has errors, it returns only the directories, from the
// environment and the defaults.
func Next(environ []string) Config {
	for _, role := range []Role{Server, Agent} {
		if cfg, err := Resolve(role, nil, environ); err == nil {
			return cfg
		}
	}
	dirs := paths.Default()
	dirs.Data = cmp.Or(variable(environ, "CORACLE_DATA_DIR"), dirs.Data)
	dirs.Run = cmp.Or(variable(environ, "CORACLE_RUN_DIR"), dirs.Run)
	dirs.Kubelet = cmp.Or(variable(environ, "CORACLE_KUBELET_ROOT_DIR"), dirs.Kubelet)
	return Config{Dirs: dirs}
}

// IsVariable reports whether an environment variable has the name of a setting. The setting need not exist.
func IsVariable(name string) bool {
	return strings.HasPrefix(name, envPrefix) && !foreignEnv.MatchString(name)
}

// SecretVariables returns the names of the environment variables with secret settings.
func SecretVariables() (names []string) {
	for _, s := range allSettings() {
		if !s.secret {
			continue
		}
		if names = append(names, s.env()); s.alias != "" {
			names = append(names, s.alias)
		}
	}
	return names
}

// variable returns the value of an environment variable, "" if it is not set.
func variable(environ []string, name string) string {
	i := slices.IndexFunc(environ, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
	if i < 0 {
		return ""
	}
	return environ[i][len(name)+1:]
}
