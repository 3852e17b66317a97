package e2e

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/chartfile"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/registries"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestCharts installs charts from all sources, changes, breaks and removes them. There must be no pods except the
// charts' own.
func TestCharts(t *testing.T) {
	slots.Take(t)
	h, s := newCluster(t, "--helm-controller-namespaces=default,doomed")
	t.Run("inline", func(t *testing.T) { testInlineChart(t, h.For(t)) })
	t.Run("file", func(t *testing.T) { testChartFile(t, h.For(t)) })
	t.Run("repository", func(t *testing.T) { testChartRepository(t, h.For(t)) })
	t.Run("registry", func(t *testing.T) { testChartRegistry(t, h.For(t)) })
	t.Run("rollback", func(t *testing.T) { testChartRollback(t, h.For(t)) })
	t.Run("conflict", func(t *testing.T) { testChartConflict(t, h.For(t)) })
	t.Run("abort", func(t *testing.T) { testChartAbort(t, h.For(t)) })
	t.Run("endless", func(t *testing.T) { testChartEndless(t, h.For(t), s) })
	t.Run("let go", func(t *testing.T) { testChartLetGo(t, h.For(t)) })
	t.Run("tenant", func(t *testing.T) { testChartTenant(t, h.For(t)) })
	t.Run("killed", func(t *testing.T) { testChartKilled(t, h.For(t), s) })
	t.Run("restart", func(t *testing.T) { s = testChartRestart(t, h.For(t), s) })
	t.Run("disabled", func(t *testing.T) { testChartDisabled(t, h.For(t), s) })
}

// ready waits until the present generation of a chart is deployed.
func ready(h *hosts.Host, name string) {
	h.Kubectl("wait", "helmchart/"+name, "--for=condition=Ready", "--timeout=3m")
}

// field reads a field of an object in namespace default.
func field(h *hosts.Host, object, path string) string {
	return h.Kubectl("get", object, "-o", "jsonpath={"+path+"}")
}

// becomes waits until a field has the value.
func becomes(t *testing.T, h *hosts.Host, object, path, want string) {
	t.Helper()
	if out, err := h.TryCoracle("kubectl", "wait", object, "--for=jsonpath={"+path+"}="+want, "--timeout=3m"); err != nil {
		t.Fatalf("%s of %s is %q, not %q: %s %v; %s", path, object, field(h, object, path), want, out, err,
			h.Kubectl("get", "helmcharts", "-A", "-o", "jsonpath={.items[*].status.conditions}"))
	}
}

// reason is the JSON path of the reason of condition Ready.
const reason = `.status.conditions[?(@.type=="Ready")].reason`

// left lists the objects of a release in namespace default, including its history.
func left(h *hosts.Host, name string) string {
	return h.Kubectl("get", "all,configmaps", "-l", "app.kubernetes.io/managed-by=Helm", "-o", "name", "--field-selector", "metadata.name="+name) +
		h.Kubectl("get", "secrets", "-l", "owner=helm,name="+name, "-o", "name")
}

// removed deletes a chart and checks that no object is left.
func removed(t *testing.T, h *hosts.Host, name string) {
	t.Helper()
	h.Kubectl("delete", "helmchart", name, "--timeout=3m")
	if rest := left(h, name); rest != "" {
		t.Errorf("release %s left %s", name, rest)
	}
}

func testInlineChart(t *testing.T, h *hosts.Host) {
	chart := inline(t, chartFiles(t, "1.0.0", "crds/thing.yaml", chartCRD,
		"templates/thing.yaml", "apiVersion: charts.test/v1\nkind: Thing\nmetadata: {name: mine}\n"))
	h.Kubectl("create", "secret", "generic", "values", "--from-literal=a=text: of a Secret")
	h.Apply(helmChart("web", chart, "targetNamespace: apps", "createNamespace: true", "set: {replicas: 2}",
		"valuesSecrets: [{name: values, keys: [a]}]"))
	began := time.Now()
	ready(h, "web")
	t.Logf("ready after %.1f s", time.Since(began).Seconds())
	h.Kubectl("-n", "apps", "get", "thing/mine")
	text := func(want string) {
		t.Helper()
		hosts.Eventually(t, 2*time.Minute, func() error {
			return contains("text", h.Kubectl("-n", "apps", "get", "configmap", "web", "-o", "jsonpath={.data.text}"), want)
		})
	}
	text("of a Secret")
	for path, want := range map[string]string{
		".status.revision": "1", ".status.chartVersion": "1.0.0", ".status.appVersion": "7", reason: "Deployed",
		`.status.conditions[?(@.type=="JobCreated")].status`: "True", `.status.conditions[?(@.type=="Failed")].status`: "False",
	} {
		if got := field(h, "helmchart/web", path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	h.Kubectl("create", "secret", "generic", "new", "--from-literal=a=text: of a new Secret")
	h.Kubectl("patch", "secret", "values", "-p", `{"stringData":{"a":"text: of a changed Secret"}}`)
	text("of a changed Secret")
	h.Apply("apiVersion: helm.cattle.io/v1\nkind: HelmChartConfig\nmetadata: {name: web, namespace: default}\n" +
		"spec: {valuesContent: 'text: of a config', failurePolicy: abort}\n")
	text("of a config")
	h.Kubectl("delete", "helmchartconfig", "web")
	text("of a changed Secret")
	becomes(t, h, "helmchart/web", ".status.revision", "4")
	h.Kubectl("-n", "apps", "rollout", "status", "deployment/web", "--timeout=3m")
	pods := h.Kubectl("get", "pods", "-A", "-o", "jsonpath={.items[*].metadata.name}")
	for _, name := range strings.Fields(pods) {
		if !strings.HasPrefix(name, "web-") {
			t.Errorf("there is a pod %s, which is not the chart's", name)
		}
	}
	if out := h.Kubectl("get", "jobs,serviceaccounts,clusterrolebindings", "-A", "-o", "name"); strings.Contains(out, "helm") {
		t.Errorf("there are objects of Helm's: %s", out)
	}
	h.Kubectl("delete", "helmchart", "web", "--timeout=3m")
	if rest := h.Kubectl("-n", "apps", "get", "deployments,configmaps,secrets,things", "-o", "name"); strings.TrimSpace(rest) != "configmap/kube-root-ca.crt" {
		t.Errorf("left in the namespace: %s", rest)
	}
}

func testChartFile(t *testing.T, h *hosts.Host) {
	write := func(version string) {
		if err := os.WriteFile(h.Data("charts", "web.tgz"), chartfile.Pack(t, "web", chartFiles(t, version)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.Apply(helmChart("file", "chart: https://%{KUBERNETES_API}%/static/charts/web.tgz"))
	becomes(t, h, "helmchart/file", reason, "NotFetched")
	write("1.0.0")
	becomes(t, h, "helmchart/file", ".status.chartVersion", "1.0.0")
	write("1.0.1")
	becomes(t, h, "configmap/file", ".data.version", "1.0.1")
	removed(t, h, "file")
}

func testChartRepository(t *testing.T, h *hosts.Host) {
	authority := registries.NewAuthority(t, "charts")
	repo := "repo: " + serveCharts(t, h, authority)
	trust := "repoCA: " + indented(authority.PEM)
	h.Apply(helmChart("repo", repo, "chart: web", "version: 1.0.x", trust, "authSecret: {name: me}"))
	becomes(t, h, "helmchart/repo", reason, "NotFetched")
	h.Kubectl("create", "secret", "generic", "me", "--type=kubernetes.io/basic-auth", "--from-literal=username=me", "--from-literal=password=secret")
	ready(h, "repo")
	becomes(t, h, "configmap/repo", ".data.version", "1.0.0")
	h.Apply(helmChart("repo", repo, "chart: web", trust, "authSecret: {name: me}"))
	ready(h, "repo")
	becomes(t, h, "configmap/repo", ".data.version", "1.1.0")
	removed(t, h, "repo")
}

func testChartRegistry(t *testing.T, h *hosts.Host) {
	authority := registries.NewAuthority(t, "charts")
	r := registries.Start(t, h, registries.Options{TLS: authority, Users: map[string]string{"me": "secret"}})
	pushChart(t, h, r, authority, "1.0.0", chartfile.Pack(t, "web", chartFiles(t, "1.0.0")))
	pushChart(t, h, r, authority, "1.2.0_b", chartfile.Pack(t, "web", chartFiles(t, "1.2.0+b")))
	h.Kubectl("create", "secret", "docker-registry", "registry", "--docker-server="+r.Addr, "--docker-username=me", "--docker-password=secret")
	trust := "repoCA: " + indented(authority.PEM)
	h.Apply(helmChart("oci", "chart: oci://"+r.Addr+"/charts/web", "version: 1.0.0", trust, "dockerRegistrySecret: {name: registry}"))
	ready(h, "oci")
	becomes(t, h, "configmap/oci", ".data.version", "1.0.0")
	h.Apply(helmChart("oci", "chart: oci://"+r.Addr+"/charts/web", trust, "dockerRegistrySecret: {name: registry}"))
	ready(h, "oci")
	becomes(t, h, "configmap/oci", ".data.version", "1.2.0+b")
	removed(t, h, "oci")
}

// testChartRollback upgrades to an image that does not exist. The old pods must answer all the time.
func testChartRollback(t *testing.T, h *hosts.Host) {
	chart := inline(t, chartFiles(t, "1.0.0"))
	h.Apply(helmChart("back", chart))
	ready(h, "back")
	h.Kubectl("rollout", "status", "deployment/back", "--timeout=3m")
	before := h.Kubectl("get", "pods", "-l", "app=back", "-o", "jsonpath={.items[*].metadata.uid}")
	asked, failed := ask(t, h, "http://"+h.Kubectl("get", "pods", "-l", "app=back", "-o", "jsonpath={.items[0].status.podIP}")+":8080/name")

	h.Apply(helmChart("back", chart, "timeout: 4s", "valuesContent: 'image: coracle.test/none:1'"))
	becomes(t, h, "helmchart/back", reason, "RolledBack")
	becomes(t, h, "helmchart/back", `.status.conditions[?(@.type=="Failed")].status`, "True")
	becomes(t, h, "deployment/back", ".spec.template.spec.containers[0].image", "coracle.test/busybox:1")
	becomes(t, h, "deployment/back", ".status.availableReplicas", "1")
	if n, bad := asked(), failed(); bad > 0 || n == 0 {
		t.Errorf("%d of %d requests failed during the upgrade that was rolled back", bad, n)
	} else {
		t.Logf("%d requests, none failed", n)
	}
	if now := h.Kubectl("get", "pods", "-l", "app=back", "-o", "jsonpath={.items[*].metadata.uid}"); now != before {
		t.Errorf("pods are %s, were %s", now, before)
	}
	if status, err := h.TryCoracle("status"); !strings.Contains(status, "default/back") {
		t.Errorf("status says nothing of the chart (%v):\n%s", err, status)
	}
	h.Apply(helmChart("back", chart, "timeout: 60s", "valuesContent: 'text: mended'"))
	ready(h, "back")
	becomes(t, h, "configmap/back", ".data.text", "mended")
	removed(t, h, "back")
}

// ask makes requests continuously. The returned functions end that, and return the number of requests and of failures.
func ask(t *testing.T, h *hosts.Host, url string) (asked, failed func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	var n, bad int
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			n++
			if _, err := h.Get(url); err != nil {
				bad++
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	end := func() { cancel(); asking.Wait() }
	t.Cleanup(end)
	return func() int { end(); return n }, func() int { end(); return bad }
}

// testChartConflict upgrades a field that another client has changed.
func testChartConflict(t *testing.T, h *hosts.Host) {
	chart := inline(t, chartFiles(t, "1.0.0"))
	h.Apply(helmChart("clash", chart))
	ready(h, "clash")
	h.Kubectl("scale", "deployment/clash", "--replicas=2")
	h.Apply(helmChart("clash", chart, "set: {replicas: 3}"))
	becomes(t, h, "helmchart/clash", reason, "ReleaseFailed")
	if message := field(h, "helmchart/clash", `.status.conditions[?(@.type=="Failed")].message`); !strings.Contains(message, "forceConflicts") {
		t.Errorf("the message does not say what to do: %s", message)
	}
	h.Apply(helmChart("clash", chart, "set: {replicas: 3}", "forceConflicts: true"))
	ready(h, "clash")
	becomes(t, h, "deployment/clash", ".spec.replicas", "3")
	removed(t, h, "clash")
}

// testChartAbort leaves a failed install as it is.
func testChartAbort(t *testing.T, h *hosts.Host) {
	chart := inline(t, chartFiles(t, "1.0.0"))
	h.Apply(helmChart("abort", chart, "failurePolicy: abort", "set: {hook: no number}"))
	becomes(t, h, "helmchart/abort", reason, "ReleaseFailed")
	statuses := h.Kubectl("get", "secrets", "-l", "owner=helm,name=abort", "-o", "jsonpath={.items[*].metadata.labels.status}")
	if statuses != "failed" {
		t.Errorf("revisions are %q", statuses)
	}
	h.Apply(helmChart("abort", chart, "failurePolicy: abort"))
	ready(h, "abort")
	removed(t, h, "abort")
}

// testChartEndless has a template that calls itself without end. The API must not be affected.
func testChartEndless(t *testing.T, h *hosts.Host, s *hosts.Server) {
	chart := inline(t, chartFiles(t, "1.0.0", "templates/endless.yaml", "{{ tpl .Values.endless . }}"))
	h.Apply(helmChart("endless", chart, `valuesContent: "endless: '# one line'"`))
	ready(h, "endless")
	before, err := s.ChildPID("control-plane")
	if err != nil {
		t.Fatal(err)
	}
	h.Apply(helmChart("endless", chart, `valuesContent: "endless: '{{ tpl .Values.endless . }}'"`))
	becomes(t, h, "helmchart/endless", reason, "TooLarge")
	if now, err := s.ChildPID("control-plane"); now != before {
		t.Errorf("the control plane was process %d, is %d (%v)", before, now, err)
	}
	h.Apply(helmChart("endless", chart, `valuesContent: "endless: '# another line'"`))
	ready(h, "endless")
	removed(t, h, "endless")
}

// testChartLetGo deletes a chart that is not managed any more, and a namespace with a chart in it.
func testChartLetGo(t *testing.T, h *hosts.Host) {
	chart := inline(t, chartFiles(t, "1.0.0"))
	h.Apply(helmChart("free", chart))
	ready(h, "free")
	h.Kubectl("annotate", "helmchart", "free", "helmcharts.helm.cattle.io/unmanaged=true")
	h.Kubectl("delete", "helmchart", "free", "--timeout=3m")
	h.Kubectl("delete", "deployment/free", "configmap/free") // they were kept
	h.Kubectl("delete", "secrets", "-l", "owner=helm,name=free")

	h.Kubectl("create", "namespace", "doomed")
	h.Apply(strings.Replace(helmChart("doomed", chart), "namespace: default", "namespace: doomed", 1))
	h.Kubectl("-n", "doomed", "wait", "helmchart/doomed", "--for=condition=Ready", "--timeout=3m")
	h.Kubectl("delete", "namespace", "doomed", "--timeout=3m")
}

// testChartKilled kills the control plane during the installation and during the upgrade of a chart.
func testChartKilled(t *testing.T, h *hosts.Host, s *hosts.Server) {
	chart := inline(t, chartFiles(t, "1.0.0"))
	pending := func(status string) {
		t.Helper()
		hosts.Eventually(t, 2*time.Minute, func() error {
			return contains("revisions", h.Kubectl("get", "secrets", "-l", "owner=helm,name=killed", "-o", "jsonpath={.items[*].metadata.labels.status}"), status)
		})
		kill(t, h, s, "control-plane")
		hosts.Eventually(t, 3*time.Minute, func() error { _, err := h.TryCoracle("kubectl", "get", "helmcharts"); return err })
	}
	// The hooks take long enough to run when the process is killed; the checks below verify that.
	h.Apply(helmChart("killed", chart, `set: {hook: "5"}`))
	pending("pending-install")
	ready(h, "killed")
	becomes(t, h, "helmchart/killed", ".status.chartVersion", "1.0.0")
	expect(t, "reinstall of web", func() (string, error) { // otherwise the installation was not interrupted
		return h.TryCoracle("kubectl", "get", "events", "--field-selector=reason=ApplyChart,involvedObject.name=killed", "-o", "jsonpath={.items[*].message}")
	})
	h.Apply(helmChart("killed", chart, `set: {hook: "5", text: new}`))
	pending("pending-upgrade")
	ready(h, "killed")
	becomes(t, h, "configmap/killed", ".data.text", "new")
	if !strings.Contains(s.Log(), "revision 2 was interrupted") {
		t.Error("the upgrade was not interrupted")
	}
	removed(t, h, "killed")
}

// testChartRestart restarts the server, which must write nothing for a chart that is up to date.
func testChartRestart(t *testing.T, h *hosts.Host, s *hosts.Server) *hosts.Server {
	h.Apply(helmChart("still", inline(t, chartFiles(t, "1.0.0"))))
	ready(h, "still")
	written := func() string {
		return h.Kubectl("get", "secrets,helmcharts,deployments", "-o", `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation} {end}`) +
			field(h, "helmchart/still", ".metadata.resourceVersion") + h.Kubectl("get", "secrets", "-l", "owner=helm", "-o", "jsonpath={.items[*].metadata.resourceVersion}")
	}
	before := written()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s = h.Start()
	waitReady(t, h)
	h.Apply(helmChart("after", inline(t, chartFiles(t, "1.0.0")))) // when it is ready, the other chart has been checked too
	ready(h, "after")
	h.Kubectl("delete", "helmchart", "after", "--timeout=3m")
	if after := written(); after != before {
		t.Errorf("before the restart:\n%s\nafter:\n%s", before, after)
	}
	return s
}

// testChartDisabled deletes a chart while the add-on is disabled: its objects stay.
func testChartDisabled(t *testing.T, h *hosts.Host, s *hosts.Server) {
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	h.Start("--disable", "helm-controller")
	waitReady(t, h)
	if names := h.Kubectl("get", "helmcharts", "-o", "name"); strings.TrimSpace(names) != "helmchart.helm.cattle.io/still" {
		t.Fatalf("charts are %s", names)
	}
	h.Kubectl("delete", "helmchart", "still", "--timeout=3m")
	h.Kubectl("get", "deployment/still", "configmap/still")
}
