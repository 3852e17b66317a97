package apiserver

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// flags returns kube-apiserver's command-line flags.
func (a APIServer) flags() kube.Flags {
	f := kube.Flags{
		{"etcd-servers", strings.Join(a.Store.Endpoints, ",")},
		{"storage-backend", "etcd3"},

		{"bind-address", a.API.Bind.String()},
		{"secure-port", strconv.Itoa(int(a.API.Port))},
		{"advertise-address", a.API.Advertise.String()},
		{"endpoint-reconciler-type", reconciler(a.API.Advertise)},
		{"tls-cert-file", a.Files.Cert},
		{"tls-private-key-file", a.Files.Key},
		{"tls-min-version", "VersionTLS12"},
		{"profiling", "false"},

		{"authentication-config", a.Files.Authentication},
		{"client-ca-file", a.Files.ClientCA},
		{"enable-bootstrap-token-auth", "true"},
		{"authorization-mode", "Node,RBAC"},
		{"enable-admission-plugins", strings.Join(a.plugins(), ",")},

		{"service-account-issuer", a.Issuer},
		{"service-account-key-file", a.Files.ServiceAccountPub},
		{"service-account-signing-key-file", a.Files.ServiceAccountKey},

		{"service-cluster-ip-range", kube.List(a.Network.ServiceCIDRs)},
		{"service-node-port-range", a.Network.NodePorts},
		{"allow-privileged", "true"},
		{"event-ttl", "1h0m0s"},
		// Otherwise a stop would wait for the watches of other nodes, which do not end by themselves.
		{"shutdown-watch-termination-grace-period", "1s"},
		// The default tolerations of pods.
		{"default-not-ready-toleration-seconds", seconds(a.API.EvictAfter)},
		{"default-unreachable-toleration-seconds", seconds(a.API.EvictAfter)},

		{"kubelet-certificate-authority", a.Files.KubeletCA},
		{"kubelet-client-certificate", a.Files.KubeletClientCert},
		{"kubelet-client-key", a.Files.KubeletClientKey},
		// The default begins with the host name. Where it does not resolve, logs and exec would hang.
		{"kubelet-preferred-address-types", "InternalIP,ExternalIP,Hostname"},

		// Requests for aggregated APIs go to pods instead of Services, so that a server needs no kube-proxy.
		{"enable-aggregator-routing", "true"},
		{"proxy-client-cert-file", a.Files.ProxyClientCert},
		{"proxy-client-key-file", a.Files.ProxyClientKey},
		{"requestheader-allowed-names", "front-proxy-client"},
		{"requestheader-client-ca-file", a.Files.ProxyClientCA},
		{"requestheader-extra-headers-prefix", "X-Remote-Extra-"},
		{"requestheader-group-headers", "X-Remote-Group"},
		{"requestheader-username-headers", "X-Remote-User"},
	}
	optional := kube.Flags{
		{"etcd-prefix", a.Store.Prefix},
		{"etcd-cafile", a.Store.CAFile},
		{"etcd-certfile", a.Store.CertFile},
		{"etcd-keyfile", a.Store.KeyFile},
		{"disable-admission-plugins", strings.Join(a.API.DisableAdmission, ",")},
		{"encryption-provider-config", cmp.Or(a.API.EncryptionConfig, a.Encryption)},
	}
	for _, kv := range optional {
		if kv[1] != "" {
			f = append(f, kv)
		}
	}
	if a.API.EncryptionConfig != "" || a.Encryption != "" {
		f = append(f, [2]string{"encryption-provider-config-automatic-reload", "true"})
	}
	if a.Security.Strict() {
		f = append(f, [2]string{"tls-cipher-suites", strings.Join(a.Security.Ciphers(), ",")},
			// Upstream accepts a pod's token for a year, for clients that do not read it again each hour. All maintained ones do.
			[2]string{"service-account-extend-token-expiration", "false"})
	}
	f = append(f, a.auditFlags()...)
	f = f.Override(a.Args)
	if file := a.admissionFile(); file != "" { // also if the user has given that flag: coracle's has the user's in it
		f = f.Override([]string{admissionFlag + "=" + file})
	}
	if a.Gates != "" {
		f = f.Override([]string{a.Gates})
	}
	return withUsersAccess(f)
}

// withUsersAccess removes coracle's flags of authentication and authorization that one of the user's excludes.
func withUsersAccess(f kube.Flags) kube.Flags {
	if slices.Contains(f.Names(), "authorization-config") {
		f = f.Without("authorization-mode")
	}
	if slices.ContainsFunc(f.Names(), func(name string) bool {
		return name == "anonymous-auth" || strings.HasPrefix(name, "oidc-")
	}) {
		return f.Without("authentication-config")
	}
	return f
}

// reconciler returns how the endpoints of the Service kubernetes are maintained. A loopback address, the only one of a host without a
// network, is not valid in endpoints.
func reconciler(advertise netip.Addr) string {
	if advertise.IsLoopback() {
		return "none"
	}
	return "lease"
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
