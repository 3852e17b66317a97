package config

import (
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/pkg/paths"
)

// Resolve reads flags (args), environment (as of os.Environ) and files, fills in defaults, and checks everything.
// A flag wins over the environment, that over drop-ins, those over the file. Nothing is written, and no privilege
// is needed. The error names every mistake, one per line, each with where it was made; for --help it is
// pflag.ErrHelp.
func Resolve(role Role, args, environ []string) (Config, error) {
	cfg, _, err := resolve(role, args, environ, thisHost())
	return cfg, err
}

func resolve(role Role, args, environ []string, h host) (Config, *raw, error) {
	var p problems
	r := &raw{}
	if err := r.read(role, args, environ, h, &p); err != nil {
		return Config{}, r, err
	}
	d := &decoder{problems: &p, host: h, role: role}
	cfg := d.config(r)
	return cfg, r, p.err()
}

// decoder turns text into types and collects what is wrong.
type decoder struct {
	*problems
	host host
	role Role
}

// config is the whole of it: one line per field.
func (d *decoder) config(r *raw) Config {
	dir := filepath.Dir(d.path(&r.config))
	cfg := Config{
		Role: d.role,
		Dirs: paths.Dirs{
			Data:    d.path(&r.dataDir),
			Run:     d.path(&r.runDir),
			Config:  dir,
			Kubelet: d.path(&r.kubeletRoot),
		},
		Log:         d.log(r),
		Disable:     d.oneOf(&r.disable),
		DrainOnStop: d.toggle(&r.drainOnStop),
		Args:        d.args(r),
	}
	if d.role == Server {
		cfg.Network = d.network(r)
	}
	cfg.Network.Iface = r.iface.one().text
	cfg.Node = d.node(r, dir, cfg.Network)
	d.checkDirs(r, cfg)
	if d.role == Agent {
		cfg.Join = d.join(r)
		return cfg
	}
	cfg.API = d.api(r, dir, cfg.Node)
	d.checkOverlaps(r, cfg)
	d.checkPorts(r, cfg)
	return cfg
}

func (d *decoder) network(r *raw) Network {
	n := Network{
		ClusterCIDRs: d.prefixes(&r.clusterCIDR),
		ServiceCIDRs: d.prefixes(&r.serviceCIDR),
		DNS:          d.addrs(&r.clusterDNS),
		Domain:       d.domain(&r.clusterDomain),
		Backend:      Backend(d.one(&r.backend)),
		NodePorts:    d.portRange(&r.nodePorts),
	}
	d.checkFamilies(r, n)
	d.checkSizes(r)
	if len(n.DNS) == 0 {
		n.DNS = d.defaultDNS(&r.clusterDNS, n.ServiceCIDRs)
	} else {
		d.checkDNS(&r.clusterDNS, n)
	}
	return n
}

func (d *decoder) node(r *raw, dir string, n Network) Node {
	return Node{
		Name:                d.nodeName(&r.nodeName),
		IPs:                 d.nodeIPs(r, n),
		ExternalIPs:         d.externalIPs(r, n),
		Labels:              d.labels(&r.nodeLabel),
		Taints:              d.taints(&r.nodeTaint),
		KubeletConfigDir:    d.pathOr(&r.kubeletDir, filepath.Join(dir, "kubelet.d")),
		ContainerdConfigDir: d.pathOr(&r.containerdDir, filepath.Join(dir, "containerd.d")),
		ResolvConf:          d.resolvConf(&r.resolvConf),
	}
}

func (d *decoder) api(r *raw, dir string, node Node) API {
	bind := d.bind(&r.bind, node.IPs)
	return API{
		Bind:             bind,
		Advertise:        d.advertise(&r.advertise, bind, node.IPs),
		Port:             d.port(&r.port),
		SANs:             d.sans(&r.sans),
		KubeconfigPath:   d.pathOr(&r.kubeconfig, filepath.Join(dir, "kubeconfig.yaml")),
		KubeconfigMode:   d.mode(&r.kubeconfigMode),
		EnableAdmission:  r.enableAdmission.texts(),
		DisableAdmission: r.disableAdmission.texts(),
		AdmissionConfig:  d.file(&r.admissionConfig),
		SchedulerConfig:  d.file(&r.schedulerConfig),
		EncryptionConfig: d.file(&r.encryptionConfig),
		AuditPolicy:      d.file(&r.auditPolicy),
	}
}

func (d *decoder) join(r *raw) Join {
	j := Join{Server: d.serverURL(&r.server), Token: r.token.one().text, TokenFile: d.file(&r.tokenFile)}
	if j.Token != "" && j.TokenFile != "" {
		d.add("%s and %s are both given; choose one", r.token.label(), r.tokenFile.label())
	}
	return j
}

// args collects the pass-through flags by part.
func (d *decoder) args(r *raw) map[string][]string {
	out := map[string][]string{}
	for _, v := range []*value{&r.etcdArg, &r.apiserverArg, &r.controllerArg, &r.schedulerArg, &r.kubeletArg, &r.proxyArg} {
		if texts := d.passThrough(v); len(texts) > 0 {
			out[strings.TrimSuffix(v.setting.name, "-arg")] = texts
		}
	}
	return out
}
