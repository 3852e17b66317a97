package conventions

import (
	"go/ast"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rooms are the folders of pkg and what each may import of the others; a package may always import its own room. Reading
// from the top, no room imports one that stands further down, so there is no circle. A new arrow is a line in this table.
var rooms = []struct {
	room string
	may  []string
	why  string
}{
	{"pkg/core", nil, "what every process is built of: configuration, paths, lifecycle, logs, the ledger, glue to client-go"},
	{"pkg/runtime", []string{"pkg/core"}, "containerd, images and registries"},
	{"pkg/network", []string{"pkg/core"}, "pod network, DNS, network policies, the way to the API and back"},
	{"pkg/cluster", []string{"pkg/core"}, "who belongs to the cluster: keys, tokens, joining, what nodes may claim"},
	{"pkg/etcd", []string{"pkg/core", "pkg/cluster"}, "the member of etcd, who else is one, and its data"},
	{"manifests", []string{"pkg/core", "pkg/network"}, "objects that are applied at the start"},
	{"pkg/addons", []string{"manifests", "pkg/cluster", "pkg/core", "pkg/network", "pkg/runtime"}, "what --disable leaves out, one folder each, and the table of it"},
	{"pkg/kubernetes", []string{"pkg/core", "pkg/network"}, "the parts of Kubernetes itself"},
	{"pkg/machine", []string{"pkg/addons", "pkg/core", "pkg/network"}, "what is done to a machine: install, upgrade, reset"},
	{"pkg/localcluster", []string{"pkg/cluster", "pkg/core", "pkg/etcd", "pkg/machine", "pkg/network"}, "clusters of several nodes on one machine"},
	{"pkg/diagnose", []string{"pkg/cluster", "pkg/core", "pkg/etcd", "pkg/machine", "pkg/network", "pkg/runtime"}, "what people are told about a machine and a cluster"},
	{"pkg/front", []string{"pkg/addons", "pkg/cluster", "pkg/core", "pkg/diagnose", "pkg/localcluster", "pkg/machine", "pkg/network", "pkg/runtime"}, "composes the process that people start, and its command line"},
	{"pkg/controlplane", []string{"manifests", "pkg/addons", "pkg/cluster", "pkg/core", "pkg/etcd", "pkg/kubernetes", "pkg/network"}, "composes the control plane"},
	{"pkg/node", []string{"manifests", "pkg/addons", "pkg/cluster", "pkg/core", "pkg/kubernetes", "pkg/machine", "pkg/network", "pkg/runtime"}, "composes a node"},
}

// roomOf names the room that a directory belongs to; commands are in none, they put everything together.
func roomOf(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	if parts[0] != "pkg" || len(parts) == 1 {
		return parts[0]
	}
	return parts[0] + "/" + parts[1]
}

// TestRooms: every import across rooms is in the table, and every entry of the table is used.
func TestRooms(t *testing.T) {
	unused := map[[2]string]bool{}
	may := map[string][]string{}
	for i, r := range rooms {
		may[r.room] = append([]string{r.room}, r.may...)
		for _, other := range r.may {
			unused[[2]string{r.room, other}] = true
			if !slices.ContainsFunc(rooms[:i], func(above struct {
				room string
				may  []string
				why  string
			}) bool {
				return above.room == other
			}) {
				t.Errorf("%s may import %s, which does not stand above it in the table", r.room, other)
			}
		}
	}
	for _, s := range product(t) {
		from := roomOf(s.dir)
		if from == "cmd" || from == "scripts" {
			continue
		}
		if may[from] == nil {
			t.Errorf("%s: %s is not in the table of rooms", s.path, from)
			continue
		}
		for _, imported := range s.imports() {
			dir, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			delete(unused, [2]string{from, roomOf(dir)})
			if !slices.Contains(may[from], roomOf(dir)) {
				t.Errorf("%s imports %s: %s may import %s only", s.path, dir, from, strings.Join(may[from], ", "))
			}
		}
	}
	for arrow := range unused {
		t.Errorf("%s does not import %s any more: take it out of the table", arrow[0], arrow[1])
	}
}

// bottom are packages that import no package of coracle, or only the listed ones.
var bottom = map[string][]string{
	"pkg/core/paths": {}, "pkg/core/version": {}, "pkg/core/atomicfile": {}, "pkg/core/lifecycle": {}, "pkg/core/exitcode": {},
	"pkg/core/config": {"pkg/core/paths"},
}

func TestBottom(t *testing.T) {
	for _, s := range product(t) {
		allowed, listed := bottom[s.dir]
		for _, imported := range s.imports() {
			dir, ours := strings.CutPrefix(imported, module+"/")
			if listed && ours && !slices.Contains(allowed, dir) {
				t.Errorf("%s imports %s: it is at the bottom", s.path, dir)
			}
		}
	}
}

// TestComponentsAreComposed: only the composition roots, the table of add-ons and commands import a package with a
// lifecycle.Component. A component imports neither other components nor those.
func TestComponentsAreComposed(t *testing.T) {
	components := map[string]bool{}
	for _, s := range product(t) {
		for _, decl := range s.ast.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "Run" && len(f.Type.Params.List) == 2 &&
				slices.ContainsFunc(f.Type.Params.List[1].Names, func(n *ast.Ident) bool { return n.Name == "ready" || n.Name == "_" }) {
				components[s.dir] = under(s.dir, "pkg")
			}
		}
	}
	delete(components, "pkg/core/kube") // its components wrap those of others
	if len(components) < 30 {
		t.Fatalf("only %d components were found", len(components))
	}
	for _, s := range product(t) {
		if slices.Contains([]string{"cmd", "pkg/front", "pkg/controlplane", "pkg/node"}, roomOf(s.dir)) || s.dir == "pkg/addons" {
			continue
		}
		for _, imported := range s.imports() {
			if dir := strings.TrimPrefix(imported, module+"/"); components[dir] {
				t.Errorf("%s imports %s, which is a component: move what they share into a package of its own", s.path, dir)
			}
		}
	}
}

// external says which packages may import modules of third parties.
var external = []struct {
	modules *regexp.Regexp
	may     []string // directories
	why     string
}{
	{regexp.MustCompile(`^k8s\.io/kubernetes(/|$)`), []string{"pkg/kubernetes", "pkg/addons/localstorage/nodevolumes", "pkg/addons/servicelb", "pkg/cluster/nodeadmission"},
		"only the component that runs a part of Kubernetes imports it, and plugins of the API server, which get its internal objects"},
	{regexp.MustCompile(`^k8s\.io/kubectl(/|$)`), []string{"cmd/coracle-core"}, "only the kubectl command needs it"},
	{regexp.MustCompile(`^go\.etcd\.io/etcd/server(/|$)`), []string{"pkg/etcd/member"}, "only the component that runs etcd imports its server"},
	{regexp.MustCompile(`^github\.com/coredns/`), []string{"pkg/network/coredns"}, "only the component that runs CoreDNS imports it"},
	{regexp.MustCompile(`^github\.com/caddyserver/`), []string{"pkg/network/gateway/dataplane"}, "only the gateway's process serves with Caddy"},
	{regexp.MustCompile(`^github\.com/quic-go/`), []string{"pkg/network/gateway/http3", "pkg/network/gateway/dataplane"}, "only the gateway's process serves HTTP/3"},
	{regexp.MustCompile(`^github\.com/pires/`), []string{"pkg/network/gateway/listening", "pkg/network/gateway/dataplane"}, "only where the gateway accepts connections it reads who a balancer says the client is"},
	{regexp.MustCompile(`^sigs\.k8s\.io/sig-storage-lib-external-provisioner/`), []string{"pkg/addons/localstorage"}, "only the component that makes volumes imports the library for it"},
	{regexp.MustCompile(`^github\.com/flannel-io/`), []string{"pkg/network/flannel"}, "only the component that runs flannel imports it"},
	{regexp.MustCompile(`^sigs\.k8s\.io/metrics-server/`), []string{"pkg/addons/metricsserver"}, "only the component that serves metrics.k8s.io imports it"},
	{regexp.MustCompile(`^(helm\.sh|oras\.land)/`), []string{"pkg/addons/helm"}, "only the component that applies charts imports Helm"},
	{regexp.MustCompile(`^sigs\.k8s\.io/knftables(/|$)`), []string{"pkg/network/networkpolicy", "pkg/network/flannel", "pkg/network/announcer"}, "only network policies, the pod network and the announcer of addresses write nft tables"},
	{regexp.MustCompile(`^github\.com/spf13/cobra(/|$)`), []string{"cmd/coracle-core", "pkg/front/command"}, "commands are declared there"},
	{regexp.MustCompile(`^github\.com/(coreos/go-systemd|godbus)/`), []string{"pkg/runtime/containerd"}, "only the scope of the shims is asked of systemd over D-Bus"},
	{regexp.MustCompile(`^(log|log/slog)$`), []string{"pkg/core/kube"}, "logrus is the one sink, and pkg/core/kube leads the others into it"},
	{regexp.MustCompile(`^(io/ioutil|github\.com/pkg/errors)$`), []string{}, "it is outdated"},
}

func TestExternalImports(t *testing.T) {
	for _, s := range product(t) {
		for _, imported := range s.imports() {
			for _, rule := range external {
				if rule.modules.MatchString(imported) && !slices.ContainsFunc(rule.may, func(d string) bool { return under(s.dir, d) }) {
					t.Errorf("%s imports %s: %s", s.path, imported, rule.why)
				}
			}
		}
	}
}

// small lists commands that must not link certain packages, according to `go list -deps`.
var small = []struct {
	pkg   string
	never *regexp.Regexp
	most  int // packages of other modules
	why   string
}{
	{"cmd/coracle", regexp.MustCompile(`^(k8s\.io|sigs\.k8s\.io|go\.etcd\.io|github\.com/containerd|github\.com/flannel-io|github\.com/coredns|google\.golang\.org)`), 35,
		"the front is small and links no Kubernetes"},
	{"pkg/core/config", regexp.MustCompile(`^(k8s\.io|net/http$|github\.com/sirupsen)`), 3, "config imports the standard library, pflag and yaml"},
}

func TestLinked(t *testing.T) {
	for _, rule := range small {
		t.Run(rule.pkg, func(t *testing.T) {
			cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{else}}std {{.ImportPath}}{{end}}", "./"+rule.pkg)
			cmd.Dir = top
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v", cmd, err)
			}
			others := 0
			for line := range strings.Lines(string(out)) {
				pkg, standard := strings.CutPrefix(strings.TrimSpace(line), "std ")
				if rule.never.MatchString(pkg) {
					t.Errorf("%s links %s: %s", rule.pkg, pkg, rule.why)
				}
				if !standard && !strings.HasPrefix(pkg, module) {
					others++
				}
			}
			if others > rule.most {
				t.Errorf("%s links %d packages of other modules, more than %d: %s", rule.pkg, others, rule.most, rule.why)
			}
		})
	}
}

// TestPackageNames: a package is named for its content.
func TestPackageNames(t *testing.T) {
	bad := regexp.MustCompile(`^(util|utils|common|types|helpers?|misc|shared|base|lib)$`)
	for _, s := range all(t) {
		if bad.MatchString(s.ast.Name.Name) || bad.MatchString(path.Base(s.dir)) {
			t.Errorf("%s: package %s says nothing about what it holds", s.path, s.ast.Name.Name)
		}
	}
}
