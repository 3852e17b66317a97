package cis

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// automatedIDs are all recommendations of the benchmark that are marked as automated.
const automatedIDs = "1.1.1 1.1.2 1.1.3 1.1.4 1.1.5 1.1.6 1.1.7 1.1.8 1.1.11 1.1.12 1.1.13 1.1.14 1.1.15 1.1.16 1.1.17 1.1.18 1.1.19 " +
	"1.2.2 1.2.4 1.2.5 1.2.6 1.2.7 1.2.8 1.2.10 1.2.12 1.2.13 1.2.14 1.2.15 1.2.16 1.2.17 1.2.18 1.2.19 1.2.21 1.2.22 1.2.23 1.2.24 1.2.25 1.2.26 1.2.30 " +
	"1.3.2 1.3.3 1.3.4 1.3.5 1.3.6 1.3.7 1.4.1 1.4.2 2.1 2.2 2.3 2.4 2.5 2.6 " +
	"4.1.1 4.1.2 4.1.5 4.1.6 4.1.9 4.1.10 4.2.1 4.2.2 4.2.3 4.2.6 4.2.10 4.3.1"

// server is a server as coracle makes it, with the flags of the golden files. Tests run as root, and so does its control plane.
func server(t *testing.T) *Machine {
	t.Helper()
	dirs := paths.Dirs{Data: t.TempDir(), Run: t.TempDir(), Config: t.TempDir()}
	m := &Machine{Parts: map[string]state.Settings{}, Service: filepath.Join(dirs.Config, "coracle.service")}
	m.Config = config.Config{Role: config.Server, Dirs: dirs, Security: config.Security{Profile: config.ProfileStandard, Hardened: true}}
	m.Config.API.KubeconfigPath = filepath.Join(dirs.Config, "kubeconfig.yaml")
	for part, golden := range map[string]string{
		"kube-apiserver": "kubernetes/apiserver/testdata/hardened", "kube-controller-manager": "kubernetes/controllermanager/testdata/plain",
		"kube-scheduler": "kubernetes/scheduler/testdata/plain", "kube-proxy": "kubernetes/kubeproxy/testdata/default", "kubelet": "kubernetes/kubelet/testdata/full.flags",
	} {
		m.Parts[part] = goldenFlags(t, golden)
	}
	m.Parts["etcd"] = state.Settings{Flags: [][2]string{{"listen-client-urls", "unix://" + dirs.EtcdSocket()}, {"auto-tls", "false"}, {"peer-cert-file", "/peer.crt"},
		{"peer-key-file", "/peer.key"}, {"peer-client-cert-auth", "true"}, {"peer-auto-tls", "false"}}}
	m.set("kube-apiserver", "etcd-servers", "unix://"+dirs.EtcdSocket())
	m.set("kube-scheduler", "kubeconfig", dirs.ServerConfig("scheduler.kubeconfig"))
	m.set("kube-controller-manager", "kubeconfig", dirs.ServerConfig("controller-manager.kubeconfig"))
	var tree any
	text, err := os.ReadFile("../../kubernetes/kubelet/testdata/full.yaml.golden")
	if err == nil {
		err = yaml.Unmarshal(text, &tree)
	}
	kubelet, errJSON := json.Marshal(tree)
	if err != nil || errJSON != nil {
		t.Fatal(err, errJSON)
	}
	m.Parts["kubelet"] = state.Settings{Flags: m.Parts["kubelet"].Flags, Config: kubelet}
	for _, file := range []string{m.Service, m.Config.API.KubeconfigPath, dirs.ServerConfig("admin.kubeconfig"), dirs.ServerConfig("scheduler.kubeconfig"),
		dirs.ServerConfig("controller-manager.kubeconfig"), filepath.Join(dirs.PKI(), "ca.key"), filepath.Join(dirs.Etcd(), "db"), dirs.ControlPlaneRun("x"),
		dirs.NodeConfig("kubelet.kubeconfig"), dirs.NodeConfig("kubelet.yaml")} {
		put(t, file)
	}
	return m
}

func put(t *testing.T, file string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func goldenFlags(t *testing.T, name string) (s state.Settings) {
	t.Helper()
	text, err := os.ReadFile("../../" + name + ".golden")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "--"), "=")
		s.Flags = append(s.Flags, [2]string{name, value})
	}
	return s
}

// set changes a flag, or removes it if the value is "-".
func (m *Machine) set(part, name, value string) {
	s := m.Parts[part]
	s.Flags = slices.DeleteFunc(slices.Clone(s.Flags), func(kv [2]string) bool { return kv[0] == name })
	if value != "-" {
		s.Flags = append(s.Flags, [2]string{name, value})
	}
	m.Parts[part] = s
}

// kubeletSays changes a text of the kubelet's configuration.
func (m *Machine) kubeletSays(t *testing.T, from, to string) {
	t.Helper()
	s := m.Parts["kubelet"]
	after := strings.Replace(string(s.Config), from, to, 1)
	if after == string(s.Config) {
		t.Fatalf("the kubelet's configuration has no %s: %s", from, after)
	}
	s.Config = []byte(after)
	m.Parts["kubelet"] = s
}

func (r Report) ids(which func(Finding) bool) (ids []string) {
	for _, f := range r.Findings {
		if which(f) {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

func failed(f Finding) bool { return f.Automated && f.Result == Fail }

// TestDefaults: coracle's own flags and files meet every automated recommendation, and the list of these is complete.
func TestDefaults(t *testing.T) {
	report := server(t).Run()
	if bad := report.ids(failed); len(bad) > 0 {
		t.Errorf("failed: %v", bad)
	}
	if got := strings.Join(report.ids(func(f Finding) bool { return f.Automated }), " "); got != automatedIDs {
		t.Errorf("automated are\n%s, not\n%s", got, automatedIDs)
	}
	for _, f := range report.Findings {
		if f.Evidence == "" || f.About == "" || f.Result == NotApplicable && f.Reason == "" {
			t.Errorf("without evidence or reason: %+v", f)
		}
	}
	agent := server(t)
	agent.Config.Role = config.Agent
	for _, f := range agent.Run().Findings {
		if !strings.HasPrefix(f.ID, "4.") || failed(f) {
			t.Errorf("on an agent: %+v", f)
		}
	}
}

// TestBroken: each automated recommendation fails, and no other does, if what it is about is not as it should be.
func TestBroken(t *testing.T) {
	flag := func(part, name, value string) func(*testing.T, *Machine) {
		return func(_ *testing.T, m *Machine) { m.set(part, name, value) }
	}
	file := func(path func(paths.Dirs) string, mode os.FileMode) func(*testing.T, *Machine) {
		return func(t *testing.T, m *Machine) {
			if err := os.Chmod(path(m.Config.Dirs), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	owner := func(path func(paths.Dirs) string) func(*testing.T, *Machine) {
		return func(t *testing.T, m *Machine) {
			if err := os.Chown(path(m.Config.Dirs), 1, 1); err != nil {
				t.Skipf("changing an owner: %v", err)
			}
		}
	}
	config := func(name string) func(paths.Dirs) string {
		return func(d paths.Dirs) string { return d.ServerConfig(name + ".kubeconfig") }
	}
	onNode := func(name string) func(paths.Dirs) string {
		return func(d paths.Dirs) string { return d.NodeConfig(name) }
	}
	service := func(d paths.Dirs) string { return filepath.Join(d.Config, "coracle.service") }
	kubelet := func(from, to string) func(*testing.T, *Machine) {
		return func(t *testing.T, m *Machine) { m.kubeletSays(t, from, to) }
	}
	broken := map[string][]func(*testing.T, *Machine){
		"1.1.11": {file(paths.Dirs.Etcd, 0o755)}, "1.1.12": {owner(paths.Dirs.Etcd)},
		"1.1.13": {file(config("admin"), 0o640)}, "1.1.14": {owner(config("admin"))},
		"1.1.15": {file(config("scheduler"), 0o644)}, "1.1.16": {owner(config("scheduler"))},
		"1.1.17": {file(config("controller-manager"), 0o644)}, "1.1.18": {owner(config("controller-manager"))},
		"1.1.19": {owner(func(d paths.Dirs) string { return filepath.Join(d.PKI(), "ca.key") })},
		"1.2.2":  {flag(api, "token-auth-file", "/tokens")},
		"1.2.4":  {flag(api, "kubelet-client-certificate", "-"), flag(api, "kubelet-client-key", "")},
		"1.2.5":  {flag(api, "kubelet-certificate-authority", "-")},
		"1.2.6":  {flag(api, "authorization-mode", "Node,RBAC,AlwaysAllow")},
		"1.2.7":  {flag(api, "authorization-mode", "RBAC")}, "1.2.8": {flag(api, "authorization-mode", "Node")},
		"1.2.10": {flag(api, "enable-admission-plugins", "NodeRestriction,AlwaysAdmit")},
		"1.2.12": {flag(api, "disable-admission-plugins", "ServiceAccount")}, "1.2.13": {flag(api, "disable-admission-plugins", "A,NamespaceLifecycle")},
		"1.2.14": {flag(api, "enable-admission-plugins", "-"), flag(api, "enable-admission-plugins", "AlwaysPullImages")},
		"1.2.15": {flag(api, "profiling", "true"), flag(api, "profiling", "-")},
		"1.2.16": {flag(api, "audit-log-path", "-")}, "1.2.17": {flag(api, "audit-log-maxage", "29"), flag(api, "audit-log-maxage", "-")},
		"1.2.18": {flag(api, "audit-log-maxbackup", "9")}, "1.2.19": {flag(api, "audit-log-maxsize", "12")},
		"1.2.21": {flag(api, "service-account-lookup", "false")}, "1.2.22": {flag(api, "service-account-key-file", "-")},
		"1.2.23 1.2.26": {flag(api, "etcd-servers", "http://etcd:2379"), func(t *testing.T, m *Machine) {
			m.set(api, "etcd-servers", "unix:///dev/null") // a directory for everybody
		}},
		"1.2.24": {flag(api, "tls-cert-file", "-")}, "1.2.25": {flag(api, "client-ca-file", "-")},
		"1.2.30": {flag(api, "service-account-extend-token-expiration", "-"), flag(api, "service-account-extend-token-expiration", "true")},
		"1.3.2":  {flag(manager, "profiling", "true")}, "1.3.3": {flag(manager, "use-service-account-credentials", "-")},
		"1.3.4": {flag(manager, "service-account-private-key-file", "-")}, "1.3.5": {flag(manager, "root-ca-file", "-")},
		"1.3.6": {flag(manager, "feature-gates", "A=true,RotateKubeletServerCertificate=false")},
		"1.3.7": {flag(manager, "secure-port", "10257")}, "1.4.1": {flag(scheduler, "profiling", "-")}, "1.4.2": {flag(scheduler, "secure-port", "-")},
		"2.1 2.2": {flag(etcd, "listen-client-urls", "https://0.0.0.0:2379")},
		"2.3":     {flag(etcd, "auto-tls", "true")}, "2.4": {flag(etcd, "peer-key-file", "-")}, "2.5": {flag(etcd, "peer-client-cert-auth", "false")},
		"2.6":   {flag(etcd, "peer-auto-tls", "true")},
		"4.1.1": {file(service, 0o644)}, "4.1.2": {owner(service)},
		"4.1.5": {file(onNode("kubelet.kubeconfig"), 0o644), func(t *testing.T, m *Machine) {
			if err := os.Remove(m.Config.Dirs.NodeConfig("kubelet.kubeconfig")); err != nil {
				t.Fatal(err)
			}
			put(t, m.Config.Dirs.NodeConfig("kubelet.kubeconfig"))
			file(onNode("kubelet.kubeconfig"), 0o604)(t, m)
		}}, "4.1.6": {owner(onNode("kubelet.kubeconfig"))},
		"4.1.9": {file(onNode("kubelet.yaml"), 0o644)}, "4.1.10": {owner(onNode("kubelet.yaml"))},
		"4.2.1": {kubelet(`"anonymous":{"enabled":false}`, `"anonymous":{"enabled":true}`)}, "4.2.2": {kubelet(`"mode":"Webhook"`, `"mode":"AlwaysAllow"`)},
		"4.2.3":  {kubelet(`"clientCAFile":"`, `"clientCAFiles":"`)},
		"4.2.6":  {flag(proxy, "proxy-mode", "iptables")},
		"4.2.10": {kubelet(`"rotateCertificates":true`, `"rotateCertificates":false`)},
		"4.3.1":  {flag(proxy, "metrics-bind-address", "0.0.0.0:10249")},
	}
	for i, part := range []string{api, manager, scheduler, etcd} {
		spec := func(d paths.Dirs) string { return filepath.Join(d.StaticPods(), part+".yaml") }
		add := func(t *testing.T, m *Machine) { put(t, spec(m.Config.Dirs)) }
		modeID, ownerID := "1.1."+string(rune('1'+2*i)), "1.1."+string(rune('2'+2*i))
		broken[modeID] = []func(*testing.T, *Machine){func(t *testing.T, m *Machine) { add(t, m); file(spec, 0o644)(t, m) }}
		broken[ownerID] = []func(*testing.T, *Machine){func(t *testing.T, m *Machine) { add(t, m); owner(spec)(t, m) }}
	}
	tried := map[string]bool{}
	for ids, ways := range broken {
		for _, id := range strings.Fields(ids) {
			tried[id] = true
		}
		for _, spoil := range ways {
			t.Run(ids, func(t *testing.T) {
				m := server(t)
				spoil(t, m)
				report := m.Run()
				if got := strings.Join(report.ids(failed), " "); got != ids {
					t.Errorf("failed are %q", got)
				}
				if report.Result != Fail {
					t.Errorf("the result is %s", report.Result)
				}
			})
		}
	}
	for id := range strings.FieldsSeq(automatedIDs) {
		if !tried[id] {
			t.Errorf("nothing breaks %s", id)
		}
	}
}

// TestJudged: what administrators decide does not fail, and the profile decides it.
func TestJudged(t *testing.T) {
	m := server(t)
	warned := func() string {
		return strings.Join(m.Run().ids(func(f Finding) bool { return f.Result == Warn }), " ")
	}
	if got := warned(); got != "1.2.1 1.2.3 1.2.9 1.2.11 4.2.7" {
		t.Errorf("warned of %s", got)
	}
	m.set(api, "enable-admission-plugins", "NodeRestriction,AlwaysPullImages,DenyServiceExternalIPs,EventRateLimit")
	m.set(api, "anonymous-auth", "false")
	if got := warned(); got != "4.2.7" {
		t.Errorf("with the profile's plugins, warned of %s", got)
	}
	m.set(api, "tls-cipher-suites", "TLS_RSA_WITH_AES_128_CBC_SHA")
	if bad := m.Run().ids(func(f Finding) bool { return f.ID == "1.2.29" && f.Result == Fail }); bad == nil {
		t.Error("a weak cipher passes")
	}
}

// TestMissingParts: a part that should run and has not started fails, and one that need not does not.
func TestMissingParts(t *testing.T) {
	m := server(t)
	delete(m.Parts, scheduler)
	delete(m.Parts, proxy)
	m.Config.Disable = []string{proxy}
	if bad := m.Run().ids(failed); !slices.Equal(bad, []string{"1.4.1", "1.4.2"}) {
		t.Errorf("on the server that leads, failed: %v", bad)
	}
	m.Standby = map[string]bool{scheduler: true}
	if bad := m.Run().ids(failed); len(bad) > 0 {
		t.Errorf("failed: %v", bad)
	}
	m.Config.Disable = nil
	if bad := m.Run().ids(failed); !slices.Equal(bad, []string{"4.3.1"}) {
		t.Errorf("failed: %v", bad)
	}
	for id := range strings.FieldsSeq("4.2.1 4.2.4 4.2.5 4.2.6 4.2.8 4.2.11 4.2.14") {
		for name, change := range map[string]func(){
			"no configuration": func() { m.Parts["kubelet"] = state.Settings{Config: []byte("seccompDefault: true")} },
			"no kubelet":       func() { delete(m.Parts, "kubelet") },
		} {
			change()
			if f := m.finding(t, id); f.Result != Fail && f.Result != Warn {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
	if _, err := Open(m.Config); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Error(err)
	}
	state.NewRecorder(m.Config.Dirs, state.Node, "v1")
	if _, err := Open(m.Config); err == nil || !strings.Contains(err.Error(), "restart coracle") {
		t.Errorf("of a process that has reported nothing: %v", err)
	}
}
