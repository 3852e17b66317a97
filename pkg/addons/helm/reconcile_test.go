package helm

import (
	"bytes"
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// bench is a controller with an API that exists in memory only.
type bench struct {
	*controller
	log bytes.Buffer
}

// newBench has these HelmCharts, and of releases these Secrets.
func newBench(charts []*unstructured.Unstructured, releases ...runtime.Object) *bench {
	b := &bench{}
	log := logrus.New()
	log.SetOutput(&b.log)
	scheme := runtime.NewScheme()
	_ = metav1.AddMetaToScheme(scheme)
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, map[schema.GroupVersionResource]string{
		chartsAPI: "HelmChartList", chartConfig: "HelmChartConfigList",
	})
	b.controller = newController(HelmCharts{}, &clients{
		config: &rest.Config{}, core: fake.NewSimpleClientset(), dynamic: dynamic,
		metadata: metadatafake.NewSimpleMetadataClient(scheme, releases...),
		server:   &url.URL{Scheme: "http", Host: "127.0.0.1:1"},
	}, log)
	b.charts = cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
	b.configs = cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
	for _, u := range charts {
		_ = dynamic.Tracker().Create(chartsAPI, u, u.GetNamespace())
		_ = b.charts.Add(u)
	}
	return b
}

// now reads a HelmChart of namespace x as it is.
func (b *bench) now(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	u, err := b.clients.dynamic.Resource(chartsAPI).Namespace("x").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// object is a HelmChart of namespace x.
func object(name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": maps.Clone(spec)}}
	u.SetGroupVersionKind(chartKind)
	u.SetNamespace("x")
	u.SetName(name)
	return u
}

// TestUndecodable: the schema admits more than our types hold, and such a chart must be told of and be removable.
func TestUndecodable(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec map[string]any
		want string
	}{
		{"timeout", map[string]any{"chart": "web", "timeout": "300"}, "missing unit"},
		{"set", map[string]any{"chart": "web", "set": map[string]any{"n": int64(5000000000)}}, "5000000000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench([]*unstructured.Unstructured{object("web", tt.spec)})
			if err := b.reconcile(t.Context(), cache.NewObjectName("x", "web")); err == nil {
				t.Error("no error")
			}
			ch := partial(b.now(t, "web"))
			if ch.Status.reason() != reasonInvalid || !strings.Contains(ch.Status.Conditions[1].Message, tt.want) {
				t.Errorf("status is %v", ch.Status)
			}
			if !strings.Contains(b.log.String(), tt.want) || b.problems[cache.NewObjectName("x", "web")] == "" {
				t.Errorf("log is %q, ill are %v", b.log.String(), b.problems)
			}
		})
	}
}

// TestUndecodableIsRemoved, whoever it belongs to.
func TestUndecodableIsRemoved(t *testing.T) {
	for _, tt := range []struct {
		name       string
		annotation string
		disabled   bool
	}{{"ours", "", false}, {"unmanaged", unmanagedAnnotation, false}, {"disabled", "", true}} {
		t.Run(tt.name, func(t *testing.T) {
			u := object("web", map[string]any{"chart": "web", "timeout": "300"})
			u.SetFinalizers([]string{finalizer, "another"})
			at := metav1.Now()
			u.SetDeletionTimestamp(&at)
			u.SetAnnotations(map[string]string{tt.annotation: "true"})
			b := newBench([]*unstructured.Unstructured{u})
			b.Disabled = tt.disabled
			if err := b.reconcile(context.Background(), cache.NewObjectName("x", "web")); err != nil {
				t.Fatal(err)
			}
			if left := b.now(t, "web").GetFinalizers(); !slices.Equal(left, []string{"another"}) {
				t.Errorf("finalizers are %v", left)
			}
		})
	}
}
