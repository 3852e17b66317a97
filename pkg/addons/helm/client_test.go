package helm

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestNothingIsAskedAfterTheEnd: an action of Helm's that goes on must not write while another server leads.
func TestNothingIsAskedAfterTheEnd(t *testing.T) {
	asked := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"SecretList","apiVersion":"v1","items":[]}`))
	}))
	defer api.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: api.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	c, err := connect(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.newRelease(ctx, &chart{}, overrides{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.config.Releases.ListReleases(); err != nil || asked != 1 {
		t.Fatalf("asked %d times, %v", asked, err)
	}
	end()
	if _, err := r.config.Releases.ListReleases(); err == nil || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	if err := r.config.KubeClient.IsReachable(); err == nil || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// TestPanic: what Helm cannot cope with fails one chart, and not the process.
func TestPanic(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	c := newController(HelmCharts{}, nil, log)
	if err := c.tame(func() error { panic("no such page") }); err == nil || !strings.Contains(err.Error(), "no such page") {
		t.Errorf("got %v", err)
	}
	if err := c.tame(func() error { return nil }); err != nil {
		t.Error(err)
	}
}
