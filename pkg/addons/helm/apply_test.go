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
	"helm.sh/helm/v4/pkg/storage"
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
	config.Releases, config.KubeClient = storage.Init(driver.NewMemory()), client
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
	return &release{chart: ch, clients: b.clients, config: config, wait: []helmkube.WaitOption{}}
}

// TestReinstallCounts: what fails again after all was removed was tried, though its revision has the old number.
func TestReinstallCounts(t *testing.T) {
	u := object("web", map[string]any{"chartContent": base64.StdEncoding.EncodeToString(simple(t, "1.0.0")), "failurePolicy": "abort"})
	b := newBench([]*unstructured.Unstructured{u})
	b.Kubeconfig = newAPI(t)
	ch := &chart{}
	if err := decode(u, ch); err != nil {
		t.Fatal(err)
	}
	client := &kubefake.FailingKubeClient{WaitError: errors.New("not in time")}
	r := b.inMemory(ch, client)
	w := wish{hash: "now", source: source{spec: ch.Spec}, with: ch.Spec.overrides}
	if err := b.deploy(t.Context(), ch, r, w, install); err == nil || ch.Status.Attempted != "now" {
		t.Fatalf("installed: %v; attempted is %q", err, ch.Status.Attempted)
	}
	var err error
	if w.history, err = b.clients.history(t.Context(), ch); err != nil || len(w.history) != 1 || w.history[0] != (revision{1, common.StatusFailed, "now", "x"}) {
		t.Fatalf("history is %v, %v", w.history, err)
	}
	if err := b.deploy(t.Context(), ch, r, w, reinstall); err == nil || ch.Status.Attempted != "now" {
		t.Errorf("reinstalled: %v; attempted is %q", err, ch.Status.Attempted)
	}
}
