package apiserver

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

var update = flag.Bool("update", false, "write the golden files")

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func cidrs(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func plain() APIServer {
	const pki = "/var/lib/coracle/server/pki/"
	return APIServer{
		Store:   config.Datastore{Endpoints: []string{"unix:///run/coracle/etcd.sock"}},
		API:     config.API{Bind: addr("0.0.0.0"), Advertise: addr("192.0.2.7"), Port: 6443, EvictAfter: 30 * time.Second, Audit: true},
		Network: config.Network{ServiceCIDRs: cidrs("10.43.0.0/16"), Domain: "cluster.local", NodePorts: "30000-32767"},
		Issuer:  "https://kubernetes.default.svc.cluster.local",
		Files: Files{ClientCA: pki + "ca.crt", Cert: pki + "apiserver.crt", Key: pki + "apiserver.key",
			ServiceAccountKey: pki + "sa.key", ServiceAccountPub: pki + "sa.pub", KubeletCA: pki + "ca.crt",
			KubeletClientCert: pki + "apiserver-kubelet-client.crt", KubeletClientKey: pki + "apiserver-kubelet-client.key",
			ProxyClientCA: pki + "front-proxy-ca.crt", ProxyClientCert: pki + "front-proxy-client.crt",
			ProxyClientKey: pki + "front-proxy-client.key",
			Authentication: "/run/coracle/control-plane/authentication.yaml", AuditPolicy: "/run/coracle/control-plane/audit-policy.yaml", Admission: "/run/coracle/control-plane/admission.yaml"},
		AuditLog:   "/var/lib/coracle/log/audit/audit.log",
		Encryption: "/run/coracle/control-plane/encryption.json",
	}
}

func TestFlags(t *testing.T) {
	for name, change := range map[string]func(*APIServer){
		"plain": func(*APIServer) {},
		"dual": func(a *APIServer) {
			a.API.Bind = addr("::")
			a.Network.ServiceCIDRs = cidrs("10.43.0.0/16", "fd00:43::/112")
		},
		"ipv6": func(a *APIServer) {
			a.API.Bind, a.API.Advertise = addr("::"), addr("2001:db8::7")
			a.Network.ServiceCIDRs = cidrs("fd00:43::/112")
		},
		"datastore": func(a *APIServer) {
			a.Store = config.Datastore{Endpoints: []string{"https://192.0.2.1:2379", "https://192.0.2.2:2379"}, Prefix: "/one",
				CAFile: "/etc/ca.crt", CertFile: "/etc/client.crt", KeyFile: "/etc/client.key"}
		},
		"quiet":    func(a *APIServer) { a.API.Audit = false },
		"loopback": func(a *APIServer) { a.API.Advertise = addr("127.0.0.1") },
		"files": func(a *APIServer) {
			a.API.EnableAdmission, a.API.DisableAdmission = []string{"AlwaysPullImages", "EventRateLimit"}, []string{"PodSecurity"}
			a.API.AdmissionConfig, a.API.EncryptionConfig, a.API.AuditPolicy = "/etc/a.yaml", "/etc/e.yaml", "/etc/p.yaml"
		},
		"oidc": func(a *APIServer) {
			a.Args = []string{"oidc-issuer-url=https://id.example.org", "oidc-client-id=coracle"}
		},
		"args": func(a *APIServer) {
			a.Args = []string{"event-ttl=30m", "service-account-issuer=https://a", "service-account-issuer=https://b",
				"anonymous-auth=false", "feature-gates=A=true", "profiling"}
			a.Gates = "feature-gates=A=true,B=false"
		},
		"hardened": func(a *APIServer) { a.Security.Hardened = true },
		"cis": func(a *APIServer) {
			a.Security = config.Security{Profile: config.ProfileCIS, PodSecurity: config.PodRestricted}
			a.API.EnableAdmission, a.API.DisableAdmission = []string{"AlwaysPullImages"}, []string{"EventRateLimit"}
			a.API.AdmissionConfig, a.API.AuditPolicy = "/etc/a.yaml", "/etc/p.yaml"
		},
		"own authorization":  func(a *APIServer) { a.Args = []string{"authorization-config=/etc/authz.yaml"} },
		"own authentication": func(a *APIServer) { a.Args = []string{"authentication-config=/etc/authn.yaml"} },
	} {
		t.Run(name, func(t *testing.T) {
			a := plain()
			change(&a)
			golden(t, strings.ReplaceAll(name, " ", "-"), a.flags().String())
			if strings.Contains(name, "args") {
				return // with invented feature gates
			}
			if err := a.flags().Parse("kube-apiserver", options.NewServerRunOptions().Flags()); err != nil {
				t.Error(err)
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (run the test with -update to accept):\n%s", file, got)
	}
}

func TestUnknownFlag(t *testing.T) {
	a := plain()
	a.Args = []string{"event-tll=1h"}
	err := a.flags().Parse("kube-apiserver", options.NewServerRunOptions().Flags())
	want := `kube-apiserver has no flag "event-tll": correct or remove --kube-apiserver-arg event-tll=1h`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
