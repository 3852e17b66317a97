package conventions

import (
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers says which packages of ours a package may not import, or which only. The first line that matches counts.
var layers = []struct {
	dir   string // of the importing package, as a path.Match pattern
	only  []string
	never []string
	why   string
}{
	{dir: "pkg/paths", only: []string{}, why: "it is the bottom"},
	{dir: "pkg/version", only: []string{}, why: "it is the bottom"},
	{dir: "pkg/atomicfile", only: []string{}, why: "it is the bottom"},
	{dir: "pkg/lifecycle", only: []string{}, why: "it knows no component and no setting"},
	{dir: "pkg/config", only: []string{"pkg/paths"}, why: "everybody imports it"},
	{dir: "pkg/components/*", never: []string{"pkg/components/*", "pkg/controlplane", "pkg/node", "pkg/supervise", "pkg/bundle", "pkg/preflight"},
		why: "a component knows neither other components nor who composes them"},
	{dir: "pkg/controlplane", never: []string{"pkg/node", "pkg/supervise"}, why: "the halves are processes of their own"},
	{dir: "pkg/node", never: []string{"pkg/controlplane", "pkg/supervise"}, why: "the halves are processes of their own"},
	{dir: "cmd/coracle", never: []string{"pkg/components/*", "pkg/controlplane", "pkg/node", "pkg/kube"}, why: "the front links no Kubernetes"},
	{dir: "cmd/coracle-cni", never: []string{"pkg/components/*", "pkg/controlplane", "pkg/node", "pkg/kube"}, why: "it must stay small"},
	{dir: "cmd/*", never: []string{}, why: "commands put everything together"},
	{dir: "pkg/*", never: []string{"pkg/components/*", "pkg/controlplane", "pkg/node"}, why: "what is shared lies below the components"},
}

func matches(dir string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, dir)
		return ok && err == nil
	})
}

func TestLayers(t *testing.T) {
	for _, s := range product(t) {
		for _, layer := range layers {
			if !matches(s.dir, []string{layer.dir}) {
				continue
			}
			for _, imported := range s.imports() {
				dir, ours := strings.CutPrefix(imported, module+"/")
				if ours && (layer.only != nil && !matches(dir, layer.only) || matches(dir, layer.never)) {
					t.Errorf("%s imports %s: %s", s.path, dir, layer.why)
				}
			}
			break
		}
	}
}

// external says who may import what of others' modules.
var external = []struct {
	modules *regexp.Regexp
	may     []string // directories
	why     string
}{
	{regexp.MustCompile(`^k8s\.io/kubernetes(/|$)`), []string{"pkg/components"}, "only the component that runs a part of Kubernetes imports it"},
	{regexp.MustCompile(`^k8s\.io/kubectl(/|$)`), []string{"cmd/coracle-core"}, "only the kubectl command needs it"},
	{regexp.MustCompile(`^go\.etcd\.io/etcd/server(/|$)`), []string{"pkg/components/etcd"}, "only the component that runs etcd imports its server"},
	{regexp.MustCompile(`^github\.com/coredns/`), []string{"pkg/components/dns"}, "only the component that runs CoreDNS imports it"},
	{regexp.MustCompile(`^sigs\.k8s\.io/sig-storage-lib-external-provisioner/`), []string{"pkg/components/localstorage"}, "only the component that makes volumes imports the library for it"},
	{regexp.MustCompile(`^github\.com/flannel-io/`), []string{"pkg/components/flannel"}, "only the component that runs flannel imports it"},
	{regexp.MustCompile(`^sigs\.k8s\.io/metrics-server/`), []string{"pkg/components/metricsserver"}, "only the component that serves metrics.k8s.io imports it"},
	{regexp.MustCompile(`^(helm\.sh|oras\.land)/`), []string{"pkg/components/helmcharts"}, "only the component that applies charts imports Helm"},
	{regexp.MustCompile(`^sigs\.k8s\.io/knftables(/|$)`), []string{"pkg/components/netpol"}, "only network policies write nft tables"},
	{regexp.MustCompile(`^github\.com/spf13/cobra(/|$)`), []string{"cmd/coracle-core"}, "only core has a tree of commands"},
	{regexp.MustCompile(`^(log|log/slog)$`), []string{"pkg/kube"}, "logrus is the one sink, and pkg/kube leads the others into it"},
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

// small lists commands that must not link certain things, by what `go list -deps` says.
var small = []struct {
	pkg   string
	never *regexp.Regexp
	most  int // packages of other modules
	why   string
}{
	{"cmd/coracle", regexp.MustCompile(`^(k8s\.io|sigs\.k8s\.io|go\.etcd\.io|github\.com/containerd|github\.com/flannel-io|github\.com/coredns|github\.com/spf13/cobra|google\.golang\.org)`), 34,
		"the front is small and links no Kubernetes"},
	{"pkg/config", regexp.MustCompile(`^(k8s\.io|net/http$|github\.com/sirupsen)`), 3, "config imports the standard library, pflag and yaml"},
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

// TestPackageNames: a package is named for what it holds.
func TestPackageNames(t *testing.T) {
	bad := regexp.MustCompile(`^(util|utils|common|types|helpers?|misc|shared|base|lib)$`)
	for _, s := range all(t) {
		if bad.MatchString(s.ast.Name.Name) || bad.MatchString(path.Base(s.dir)) {
			t.Errorf("%s: package %s says nothing about what it holds", s.path, s.ast.Name.Name)
		}
	}
}
