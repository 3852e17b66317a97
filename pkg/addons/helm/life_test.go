package helm

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	helmkube "helm.sh/helm/v4/pkg/kube"
	kubefake "helm.sh/helm/v4/pkg/kube/fake"
	"helm.sh/helm/v4/pkg/release/common"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/test/chartfile"
)

// configMapChart has a ConfigMap with this name and template of its data.
func configMapChart(t *testing.T, name, data string) []byte {
	t.Helper()
	return chartfile.Pack(t, "web", map[string]string{
		"Chart.yaml":         "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"templates/one.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {x: " + data + "}\n",
	})
}

// TestLimits compares the limits with those that docs/charts.md states.
func TestLimits(t *testing.T) {
	if want := (renderLimits{Memory: 256 << 20, CPU: 60, Output: 16 << 20, Time: 2 * time.Minute}); defaultLimits != want {
		t.Errorf("the limits are %+v, not %+v", defaultLimits, want)
	}
	if limit != 16<<20 || indexLimit != 32<<20 {
		t.Errorf("an archive may have %d bytes, an index %d", limit, indexLimit)
	}
}

// waits records how Helm waits for objects.
type waits struct {
	*kubefake.FailingKubeClient
	seen *[]string
}

// GetWaiter implements helmkube.Interface.
func (w waits) GetWaiter(s helmkube.WaitStrategy) (helmkube.Waiter, error) {
	return w.GetWaiterWithOptions(s)
}

// GetWaiterWithOptions implements helmkube.InterfaceWaitOptions.
func (w waits) GetWaiterWithOptions(s helmkube.WaitStrategy, o ...helmkube.WaitOption) (helmkube.Waiter, error) {
	waiter, err := w.FailingKubeClient.GetWaiterWithOptions(s, o...)
	return recordedWaiter{waiter, s, w.seen}, err
}

type recordedWaiter struct {
	helmkube.Waiter
	strategy helmkube.WaitStrategy
	seen     *[]string
}

// Wait implements helmkube.Waiter.
func (r recordedWaiter) Wait(l helmkube.ResourceList, d time.Duration) error {
	*r.seen = append(*r.seen, fmt.Sprintf("%s %s", r.strategy, d))
	return r.Waiter.Wait(l, d)
}

// WaitForDelete implements helmkube.Waiter.
func (r recordedWaiter) WaitForDelete(l helmkube.ResourceList, d time.Duration) error {
	*r.seen = append(*r.seen, fmt.Sprintf("deleted, %s %s", r.strategy, d))
	return r.Waiter.WaitForDelete(l, d)
}

// TestWaiting sees how long each action waits, and for what, and to which revision a release is rolled back.
func TestWaiting(t *testing.T) {
	b := newBench(nil)
	ch := &chart{}
	ch.Name, ch.Namespace = "web", "x"
	if ch.timeout() != 5*time.Minute {
		t.Errorf("the timeout is %s", ch.timeout())
	}
	ch.Spec.Timeout.Duration = 90 * time.Second
	client := &kubefake.FailingKubeClient{}
	r := b.inMemory(ch, client)
	var seen []string
	r.config.KubeClient = waits{client, &seen}
	expect := func(what string, err error, want string) {
		t.Helper()
		if got := strings.Join(seen, ", "); err != nil || got != want {
			t.Errorf("%s waits: %s, want %s; %v", what, got, want, err)
		}
		seen = nil
	}
	archive := func() []byte { return configMapChart(t, "one", "y") }
	run := func(step step, hash string, newest, rollbackTo int) error {
		request := request{Chart: ch, Archive: archive(), Hash: hash, Step: step, Newest: newest, RollbackTo: rollbackTo, Limits: patient}
		if res := request.runWith(t.Context(), r, func(renderedChart) {}); res.Error != "" {
			return errors.New(res.Error)
		}
		return nil
	}
	expect("an installation", run(install, "one", 0, 0), "hookOnly 1m30s")
	expect("an upgrade", run(upgrade, "two", 1, 0), "hookOnly 1m30s")
	expect("an upgrade that may be rolled back", run(upgrade, "three", 2, 1), "watcher 1m30s")
	expect("a roll-back", r.rollback(3, 1), "watcher 1m30s")
	history, err := b.clients.history(t.Context(), ch)
	if last := newestOf(history); err != nil || last.hash != "one" || last.version != 4 || last.status != common.StatusDeployed {
		t.Errorf("history is %v, %v", history, err)
	}
	expect("an uninstallation", r.uninstall(t.Context()), "deleted, watcher 1m30s")
	if history, err := b.clients.history(t.Context(), ch); err != nil || len(history) > 0 {
		t.Errorf("history is %v, %v", history, err)
	}
}

// TestRemovedValue upgrades without a value that was set before: the chart's own value counts again.
func TestRemovedValue(t *testing.T) {
	api := newAPI(t)
	b := newBench(nil).using(t, api.URL)
	archive := configMapChart(t, "one", `{{ .Values.x | default "none" }}`)
	for _, tt := range []struct {
		step   step
		newest int
		values map[string]any
		want   string
	}{{install, 0, map[string]any{"x": "set"}, "set"}, {upgrade, 1, nil, "none"}} {
		r := requestFor(tt.step, archive, patient)
		r.Values, r.Newest = tt.values, tt.newest
		if _, err := b.runChild(t.Context(), r, ignore); err != nil {
			t.Fatal(err)
		}
		got, _, _ := unstructured.NestedString(api.objects["/api/v1/namespaces/default/configmaps/one"], "data", "x")
		if got != tt.want {
			t.Errorf("%s: the value is %q, not %q", tt.step, got, tt.want)
		}
	}
}

// TestTooLargeRemovesNothing: what works is not uninstalled for a chart that exceeds a limit, and such a chart is not tried again.
func TestTooLargeRemovesNothing(t *testing.T) {
	api := newAPI(t)
	ch := inlineChart(configMapChart(t, "one", "y"))
	b := onAPI(t, api)
	if err := b.bring(t.Context(), ch, "one"); err != nil {
		t.Fatal(err)
	}
	large := inlineChart(configMapChart(t, "one", `{{ repeat 1100000 "a" }}`))
	large.Status = ch.Status
	err := b.deploy(t.Context(), large, desired{hash: "two", source: source{spec: large.Spec}, history: []revision{newest(t, b, ch)}}, reinstall)
	if p := (problem{}); !errors.As(err, &p) || p.reason != reasonTooLarge || large.Status.Attempted != "two" {
		t.Errorf("got %v; attempted is %q", err, large.Status.Attempted)
	}
	if names := api.names("configmaps"); !slices.Equal(names, []string{"one"}) || newest(t, b, ch).status != common.StatusDeployed {
		t.Errorf("objects are %v, the release is %v", names, newest(t, b, ch))
	}
	first := desired{hash: "two"}
	if got := first.step(large.Status.withConditions(1, reasonTooLarge, err)); got != stayFailed {
		t.Errorf("a first installation: decided %s", got)
	}
}

// TestRolledBack fails an upgrade. The former revision is deployed again, and the chart is not tried again until it changes.
func TestRolledBack(t *testing.T) {
	api := newAPI(t)
	ch := inlineChart(configMapChart(t, "one", "y"))
	b := onAPI(t, api)
	if err := b.bring(t.Context(), ch, "one"); err != nil {
		t.Fatal(err)
	}
	api.refuse = func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/configmaps/bad") && r.Method != http.MethodGet
	}
	ch.Spec.ChartContent = base64.StdEncoding.EncodeToString(configMapChart(t, "bad", "y"))
	err := b.bring(t.Context(), ch, "two")
	p := problem{}
	if !errors.As(err, &p) || p.reason != reasonRolledBack || ch.Status.Attempted != "two" {
		t.Errorf("got %v; attempted is %q", err, ch.Status.Attempted)
	}
	if last := newest(t, b, ch); last.status != common.StatusDeployed || last.hash != "one" || last.version != 3 {
		t.Errorf("the release is %v", last)
	}
	ch.Status = ch.Status.withConditions(1, p.reason, err)
	if err := b.bring(t.Context(), ch, "two"); err != nil || newest(t, b, ch).version != 3 {
		t.Errorf("it was tried again: %v, %v", newest(t, b, ch), err)
	}
	ch.Status.Attempted = "" // the attempt was cancelled, and its roll-back interrupted
	history, err := b.clients.history(t.Context(), ch)
	if err != nil {
		t.Fatal(err)
	}
	err = b.deploy(t.Context(), ch, desired{hash: "two", source: source{spec: ch.Spec}, history: history}, rollback)
	if !errors.As(err, &p) || p.reason != reasonRolledBack || ch.Status.Attempted != "two" {
		t.Errorf("got %v; attempted is %q", err, ch.Status.Attempted)
	}
}

// TestRemoved deletes a HelmChart. Its finalizer stays until the release is uninstalled.
func TestRemoved(t *testing.T) {
	api := newAPI(t)
	u := object("x", map[string]any{"chartContent": base64.StdEncoding.EncodeToString(configMapChart(t, "one", "y"))})
	reconcile := func(u *unstructured.Unstructured) (*bench, error) {
		b := newBench([]*unstructured.Unstructured{u})
		real := onAPI(t, api).clients
		real.dynamic = b.clients.dynamic
		b.clients, b.refs, b.limits = real, &references{clients: real, changed: b.changed}, patient
		return b, b.reconcile(t.Context(), cache.NewObjectName("x", "x"))
	}
	b, err := reconcile(u)
	if u = b.now(t, "x"); err != nil || !slices.Contains(u.GetFinalizers(), finalizer) || !slices.Equal(api.names("configmaps"), []string{"one"}) {
		t.Fatalf("finalizers are %v, objects %v; %v", u.GetFinalizers(), slices.Collect(maps.Keys(api.objects)), err)
	}
	at := metav1.Now()
	u.SetDeletionTimestamp(&at)
	api.refuse = func(r *http.Request) bool { return r.Method == http.MethodDelete }
	b, err = reconcile(u)
	if u = b.now(t, "x"); err == nil || !slices.Contains(u.GetFinalizers(), finalizer) || partial(u).Status.reason() != reasonNotRemoved {
		t.Errorf("finalizers are %v, the reason %s; %v", u.GetFinalizers(), partial(u).Status.reason(), err)
	}
	api.refuse = nil
	b, err = reconcile(u)
	if u = b.now(t, "x"); err != nil || len(u.GetFinalizers()) > 0 || len(api.names("configmaps"))+len(api.names("secrets")) > 0 {
		t.Errorf("finalizers are %v, objects %v; %v", u.GetFinalizers(), slices.Collect(maps.Keys(api.objects)), err)
	}
}

// TestChangedCancels ends an action for the former state of a chart.
func TestChangedCancels(t *testing.T) {
	b, name := newBench(nil), cache.NewObjectName("x", "web")
	ctx, end := b.begin(t.Context(), name)
	defer end()
	b.changed(name)
	if !errors.Is(context.Cause(ctx), errChanged) || b.queue.Len() != 1 {
		t.Errorf("the action ends because of %v; %d are queued", context.Cause(ctx), b.queue.Len())
	}
}
