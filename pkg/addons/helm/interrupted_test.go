package helm

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"helm.sh/helm/v4/pkg/release/common"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/test/chartfile"
)

func oneConfigMap(t *testing.T) []byte {
	return chartfile.Pack(t, "web", map[string]string{
		"Chart.yaml":         "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"templates/one.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n",
	})
}

// interrupt installs a chart with a policy, and ends the installation when the release is pending.
func interrupt(t *testing.T, api *fakeAPI, ch *chart, policy failurePolicy) {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	api.onWrite = func() {
		if len(api.names("secrets")) > 0 {
			kill()
		}
	}
	defer func() { api.onWrite = nil }()
	b := onAPI(t, api)
	if err := b.bringWith(ctx, ch, "now", policy); err == nil {
		t.Fatal("the installation was not interrupted")
	}
	if r := newest(t, b, ch); r.status != common.StatusPendingInstall {
		t.Fatalf("the release is %v", r)
	}
	ch.Status = chartStatus{Attempted: "now"}.withConditions(1, reasonWorking, nil) // the server ended before it wrote another one
}

// bringWith does what a reconciliation does for a chart with this hash and policy.
func (b *bench) bringWith(ctx context.Context, ch *chart, hash string, policy failurePolicy) error {
	w := desired{hash: hash, source: source{spec: ch.Spec}, with: overrides{FailurePolicy: policy}}
	var err error
	if w.history, err = b.clients.history(ctx, ch); err != nil {
		return err
	}
	return b.carryOut(ctx, ch, w, w.step(ch.Status))
}

func newest(t *testing.T, b *bench, ch *chart) revision {
	t.Helper()
	history, err := b.clients.history(t.Context(), ch)
	if err != nil {
		t.Fatal(err)
	}
	return newestOf(history)
}

// TestInterruptedAndUnreachable interrupts an installation, and the repository cannot be reached when it is continued. When
// the repository is back, the chart is installed, also with a policy that does not try again what failed.
func TestInterruptedAndUnreachable(t *testing.T) {
	for _, policy := range []failurePolicy{policyAbort, policyRetry, policyUnset} {
		t.Run(string(policy), func(t *testing.T) {
			api := newAPI(t)
			ch := inlineChart(oneConfigMap(t))
			interrupt(t, api, ch, policy)
			content := ch.Spec.ChartContent
			ch.Spec.ChartContent, ch.Spec.Chart = "", "http://127.0.0.1:1/web.tgz"
			err := onAPI(t, api).bringWith(t.Context(), ch, "now", policy)
			if p := (problem{}); !errors.As(err, &p) || p.reason != reasonNotFetched {
				t.Fatalf("got %v", err)
			}
			ch.Status = ch.Status.withConditions(1, reasonNotFetched, err)
			b := onAPI(t, api)
			if r := newest(t, b, ch); r.status.IsPending() {
				t.Errorf("the release is still %v", r)
			}
			ch.Spec.ChartContent, ch.Spec.Chart = content, ""
			if err := b.bringWith(t.Context(), ch, "now", policy); err != nil {
				t.Error(err)
			}
			if r := newest(t, b, ch); r.status != common.StatusDeployed {
				t.Errorf("the release is %v", r)
			}
		})
	}
}

// TestInterruptedAndEdited interrupts an installation, and the chart cannot be applied afterwards. The release must not stay
// pending until somebody corrects the chart.
func TestInterruptedAndEdited(t *testing.T) {
	for name, edit := range map[string]func(*unstructured.Unstructured){
		"invalid": func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "300", "spec", "timeout")
		},
		"a missing Secret": func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"name": "none", "keys": []any{"k"}}}, "spec", "valuesSecrets")
		},
		"a missing file": func(u *unstructured.Unstructured) {
			u.Object["spec"] = map[string]any{"chart": "charts/none.tgz"}
		},
		"unmanaged": func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{unmanagedAnnotation: ""}) },
	} {
		t.Run(name, func(t *testing.T) {
			api := newAPI(t)
			ch := inlineChart(oneConfigMap(t))
			ch.Namespace = "x"
			interrupt(t, api, ch, policyUnset)
			u := object("x", map[string]any{"chartContent": ch.Spec.ChartContent})
			_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"type": readyType, "status": "False", "reason": reasonWorking}}, "status", "conditions")
			edit(u)
			b := newBench([]*unstructured.Unstructured{u})
			real := onAPI(t, api).clients
			real.dynamic = b.clients.dynamic
			b.clients, b.refs = real, &references{clients: real, changed: b.changed}
			b.Charts = t.TempDir()
			_ = b.reconcile(t.Context(), cache.NewObjectName("x", "x"))
			if r := newest(t, b, ch); r.status != common.StatusFailed {
				t.Errorf("the release is %v; the log is %s", r, b.log.String())
			}
			if reason := partial(b.now(t, "x")).Status.reason(); reason == reasonWorking {
				t.Error("the status says that it is being applied")
			}
		})
	}
}

// TestClearedAttemptIsWritten: the next leader must not take what was cancelled for an attempt.
func TestClearedAttemptIsWritten(t *testing.T) {
	b := newBench([]*unstructured.Unstructured{object("web", map[string]any{"chart": "web"})})
	ch := &chart{}
	ch.Namespace, ch.Name = "x", "web"
	working := chartStatus{Attempted: "now"}.withConditions(1, reasonWorking, nil)
	if err := b.write(t.Context(), ch, working); err != nil {
		t.Fatal(err)
	}
	ch.Status.Attempted = ""
	if err := b.write(t.Context(), ch, ch.Status.withConditions(1, reasonWorking, nil)); err != nil {
		t.Fatal(err)
	}
	u, err := b.clients.dynamic.Resource(chartsAPI).Namespace("x").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := partial(u).Status; got.Attempted != "" || got.reason() != reasonWorking {
		t.Errorf("the status is %+v", got)
	}
}

// TestLongMessages: no text of a chart takes the parent's memory.
func TestLongMessages(t *testing.T) {
	archive := chartfile.Pack(t, "web", map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "templates/x.yaml": `{{ fail (repeat 3000000 "a") }}`,
	})
	_, err := newBench(nil).using(t, newAPI(t).URL).runChild(t.Context(), requestFor(install, archive, patient), ignore)
	if err == nil || !strings.Contains(err.Error(), "aaaa") || len(err.Error()) > maxText+longest {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	c := newController(HelmCharts{}, nil, log)
	line := `{"msg":"` + strings.Repeat("a", 2*maxMessage) + "\"}\n"
	if outcome, err := c.listen(strings.NewReader(line+`{"Result":{}}`), "x/web", nil); outcome != nil || err == nil {
		t.Errorf("a long message: %v, %v", outcome, err)
	}
	entry := logrus.NewEntry(log)
	entry.Message = strings.Repeat("a", maxMessage)
	if data, err := (messageFormatter{}).Format(entry); err != nil || len(data) > 2*maxText {
		t.Errorf("a log entry has %d bytes, %v", len(data), err)
	}
}
