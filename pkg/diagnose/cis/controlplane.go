package cis

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

const (
	api        = "kube-apiserver"
	manager    = "kube-controller-manager"
	scheduler  = "kube-scheduler"
	etcd       = "etcd"
	notSet     = "upstream's default is what the benchmark wants"
	noListener = "it has no listener of its own; its metrics are among the API server's"
)

// controlPlane lists the recommendations for servers.
func controlPlane() []row {
	return slices.Concat(controlPlaneFiles(), apiServer(), []row{
		{"1.3.1", judged, "the number of ended pods that are kept is limited", byDefault(manager, "terminated-pod-gc-threshold", atLeast(1), "upstream's default is 12500")},
		{"1.3.2", automated, "kube-controller-manager offers no profiles", flag(manager, "profiling", truth(false))},
		{"1.3.3", automated, "each controller has credentials of its own", flag(manager, "use-service-account-credentials", truth(true))},
		{"1.3.4", automated, "tokens of service accounts are signed with a key for that", flag(manager, "service-account-private-key-file", given)},
		{"1.3.5", automated, "pods get the authority to verify the API server with", flag(manager, "root-ca-file", given)},
		{"1.3.6", automated, "serving certificates of kubelets are rotated", byDefault(manager, "feature-gates", gate("RotateKubeletServerCertificate"), notSet)},
		{"1.3.7", automated, "kube-controller-manager listens on loopback only", loopbackOnly(manager)},
		{"1.4.1", automated, "kube-scheduler offers no profiles", orFile(scheduler, "enableProfiling", truth(false), flag(scheduler, "profiling", truth(false)))},
		{"1.4.2", automated, "kube-scheduler listens on loopback only", loopbackOnly(scheduler)},
		{"2.1", automated, "etcd's clients connect with TLS", unlessSocket(etcd, "listen-client-urls", both(flag(etcd, "cert-file", given), flag(etcd, "key-file", given)))},
		{"2.2", automated, "etcd's clients need a certificate", unlessSocket(etcd, "listen-client-urls", flag(etcd, "client-cert-auth", truth(true)))},
		{"2.3", automated, "etcd does not sign certificates for clients itself", byDefault(etcd, "auto-tls", truth(false), notSet)},
		{"2.4", automated, "etcd's members connect with TLS", both(flag(etcd, "peer-cert-file", given), flag(etcd, "peer-key-file", given))},
		{"2.5", automated, "etcd's members need a certificate", flag(etcd, "peer-client-cert-auth", truth(true))},
		{"2.6", automated, "etcd does not sign certificates for members itself", byDefault(etcd, "peer-auto-tls", truth(false), notSet)},
		{"2.7", manual, "etcd has an authority of its own", ownAuthority},
		{"3.2.1", manual, "requests are audited by a policy", flag(api, "audit-policy-file", given)},
	})
}

func controlPlaneFiles() (rows []row) {
	for i, part := range []string{api, manager, scheduler, etcd} {
		specs := func(m *Machine) []string {
			file := filepath.Join(m.Config.Dirs.StaticPods(), part)
			return existing(file+".yaml", file+".yml", file+".json")
		}
		rows = append(rows,
			row{fmt.Sprintf("1.1.%d", 2*i+1), automated, part + ": mode of the pod's specification", inProcess(part, mode(specs, 0o600))},
			row{fmt.Sprintf("1.1.%d", 2*i+2), automated, part + ": owner of the pod's specification", inProcess(part, rootOwned(specs))})
	}
	cni := func(m *Machine) []string {
		configs, _ := filepath.Glob(filepath.Join(filepath.Dir(m.Config.Dirs.CNIConfig()), "*")) // the pattern is valid
		return append(configs, below(m.Config.Dirs.CNIState(), "[0-9]*")...)
	}
	admin := func(m *Machine) []string {
		return existing(m.Config.API.KubeconfigPath, m.Config.Dirs.ServerConfig("admin.kubeconfig"))
	}
	kubeconfig := func(part string) list {
		return func(m *Machine) []string { return []string{m.Config.Dirs.ServerConfig(part + ".kubeconfig")} }
	}
	withCopy := func(part string) list { // also the one that the control plane's user reads
		return func(m *Machine) []string {
			copied, _ := m.Parts["kube-"+part].Flag("kubeconfig")
			return slices.Compact(append(kubeconfig(part)(m), existing(copied)...))
		}
	}
	pki := func(pattern string) list {
		return func(m *Machine) []string { return below(m.Config.Dirs.PKI(), pattern) }
	}
	return append(rows,
		row{"1.1.9", manual, "mode of the CNI's files", mode(cni, 0o600)},
		row{"1.1.10", manual, "owner of the CNI's files", rootOwned(cni)},
		row{"1.1.11", automated, "mode of etcd's data directory", ofEtcd(mode(etcdDir, 0o700))},
		row{"1.1.12", automated, "owner of etcd's data directory", ofEtcd(etcdOwner)},
		row{"1.1.13", automated, "mode of the administrator's kubeconfig", mode(admin, 0o600)},
		row{"1.1.14", automated, "owner of the administrator's kubeconfig", rootOwned(admin)},
		row{"1.1.15", automated, "mode of kube-scheduler's kubeconfig", mode(withCopy("scheduler"), 0o600)},
		row{"1.1.16", automated, "owner of kube-scheduler's kubeconfig", rootOwned(kubeconfig("scheduler"))},
		row{"1.1.17", automated, "mode of kube-controller-manager's kubeconfig", mode(withCopy("controller-manager"), 0o600)},
		row{"1.1.18", automated, "owner of kube-controller-manager's kubeconfig", rootOwned(kubeconfig("controller-manager"))},
		row{"1.1.19", automated, "owner of keys and certificates", rootOwned(pki("*"))},
		row{"1.1.20", manual, "mode of certificates", mode(pki("*.crt"), 0o644)},
		row{"1.1.21", manual, "mode of keys", mode(pki("*.key"), 0o600)},
	)
}

// inProcess is the verdict about a pod's specification of a part that is no pod.
func inProcess(part string, p probe) probe {
	return func(m *Machine) verdict {
		v := p(m)
		if v.result == NotApplicable {
			v.evidence = fmt.Sprintf("no %s among the static pods in %s", part, m.Config.Dirs.StaticPods())
			v.reason = "it is a part of coracle's process control-plane, and no pod"
		}
		return v
	}
}

func etcdDir(m *Machine) []string { return []string{m.Config.Dirs.Etcd()} }

// ofEtcd is a probe of coracle's own etcd.
func ofEtcd(p probe) probe {
	return func(m *Machine) verdict {
		if m.Config.Datastore.External() {
			return m.absent(etcd)
		}
		return p(m)
	}
}

// etcdOwner: the directory belongs to the user that etcd runs as, who has no other files than the control plane's.
func etcdOwner(m *Machine) verdict {
	user := uint32(m.Config.ControlPlane.User)
	v := each(etcdDir, func(f file) bool { return f.owner == user && f.group == user })(m)
	v.reason = fmt.Sprintf("etcd runs as user %d, which has no name; the benchmark's user is etcd", user)
	return v
}

func loopbackOnly(part string) probe {
	return func(m *Machine) verdict {
		if v := flag(part, "secure-port", is("0"))(m); v.result != Fail {
			if v.reason == "" {
				v.reason = noListener
			}
			return v
		}
		return flag(part, "bind-address", is("127.0.0.1"))(m)
	}
}

func ownAuthority(m *Machine) verdict {
	s, started := m.Parts[etcd]
	if !started {
		return m.absent(etcd)
	}
	theirs, _ := s.Flag("peer-trusted-ca-file")
	clients, _ := m.Parts[api].Flag("client-ca-file")
	a, errA := os.ReadFile(theirs)
	b, errB := os.ReadFile(clients)
	if err := errors.Join(errA, errB); err != nil {
		return verdict{Fail, err.Error(), "the authorities of etcd's members and of the API's clients cannot be compared"}
	}
	if string(a) == string(b) {
		return passes(false, fmt.Sprintf("%s and %s are the same", theirs, clients))
	}
	return passes(true, fmt.Sprintf("%s and %s differ", theirs, clients))
}
