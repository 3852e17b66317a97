package helm

import (
	"encoding/base64"
	"errors"
	"io"
	"strconv"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	chartcommon "helm.sh/helm/v4/pkg/chart/common"
	helmkube "helm.sh/helm/v4/pkg/kube"
	kubefake "helm.sh/helm/v4/pkg/kube/fake"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

// inMemory prepares Helm for a chart, with revisions and objects in memory only. The controller sees the same revisions.
func (b *bench) inMemory(ch *chart, client *kubefake.FailingKubeClient) *release {
	config := action.NewConfiguration()
	config.KubeClient = client
	config.Capabilities = chartcommon.DefaultCapabilities
	client.PrintingKubeClient = kubefake.PrintingKubeClient{Out: io.Discard}
	b.clients.metadata.(*metadatafake.FakeMetadataClient).PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &metav1.List{}
		all, _ := config.Releases.History(ch.Name)
		for _, one := range all {
			r := one.(*releasev1.Release)
			m := revisionOf(r.Labels[fromLabel])
			m.Labels["version"], m.Labels["status"], m.Labels[hashLabel] = strconv.Itoa(r.Version), string(r.Info.Status), r.Labels[hashLabel]
			list.Items = append(list.Items, runtime.RawExtension{Object: m})
		}
		return true, list, nil
	})
	r := &release{chart: ch, clients: b.clients, config: config, wait: []helmkube.WaitOption{}}
	r.keepIn(driver.NewMemory())
	return r
}

// TestReinstallCounts: what fails again after all was removed was tried, though its revision has the old number.
func TestReinstallCounts(t *testing.T) {
	u := object("web", map[string]any{"chartContent": base64.StdEncoding.EncodeToString(simple(t, "1.0.0")), "failurePolicy": "abort"})
	b := newBench([]*unstructured.Unstructured{u})
	ch := &chart{}
	if err := decode(u, ch); err != nil {
		t.Fatal(err)
	}
	client := &kubefake.FailingKubeClient{WaitError: errors.New("not in time")}
	r := b.inMemory(ch, client)
	request := request{Chart: ch, Overrides: ch.Spec.overrides, Archive: simple(t, "1.0.0"), Hash: "now", Step: install, Limits: defaultLimits}
	if res := request.runWith(t.Context(), r, func(renderedChart) {}); res.Error == "" || !res.Begun {
		t.Fatalf("installed: %+v", res)
	}
	history, err := b.clients.history(t.Context(), ch)
	if err != nil || len(history) != 1 || history[0] != (revision{1, common.StatusFailed, "now", "x"}) {
		t.Fatalf("history is %v, %v", history, err)
	}
	request.Step, request.Newest = reinstall, 1
	if res := request.runWith(t.Context(), r, func(renderedChart) {}); res.Error == "" || !res.Begun {
		t.Errorf("reinstalled: %+v", res)
	}
}
