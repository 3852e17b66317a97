package helmcharts

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-dev/coracle/test/chartfile"
)

// TestMain lets this executable be what a trial runs in.
func TestMain(m *testing.M) {
	if os.Args[0] == TrialProgram {
		os.Exit(Trial(os.Stdin))
	}
	os.Exit(m.Run())
}

// newAPI serves just enough for rendering, and returns a kubeconfig. It refuses to be written to.
func newAPI(t *testing.T) (kubeconfig string) {
	answers := map[string]string{
		"/version": `{"major":"1","minor":"37","gitVersion":"v1.37.0"}`,
		"/api":     `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":    `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1":  `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["get"]}]}`,
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("a trial asks for %s %s", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(api.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: api.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// TestTrial renders charts that would end this process.
func TestTrial(t *testing.T) {
	kubeconfig := newAPI(t)
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
	for _, tt := range []struct {
		name, template string
		values         map[string]any
		tooLarge       bool
	}{
		{"good", object + "data: {x: {{ .Values.x }}}\n", map[string]any{"x": "y"}, false},
		{"broken", "{{ end }}", nil, false},
		{"a mistake", `{{ fail "no" }}`, nil, false},
		{"recursion", "{{ tpl .Values.x . }}", map[string]any{"x": "{{ tpl .Values.x . }}"}, true},
		{"no end", "{{ range 1000000000000 }}x: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n{{ end }}", nil, true},
		{"much output", object + `data: {x: {{ repeat 17000000 "a" }}}`, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ch := &chart{}
			ch.Name, ch.Namespace = "x", "default"
			archive := chartfile.Pack(t, "web", map[string]string{
				"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "templates/x.yaml": tt.template,
			})
			began := time.Now()
			err := trial{kubeconfig, ch, overrides{}, tt.values, archive, install}.run(t.Context())
			t.Logf("after %s: %v", time.Since(began).Round(time.Millisecond), err)
			var p problem
			if tt.tooLarge != errors.As(err, &p) || !tt.tooLarge && err != nil || tt.tooLarge && p.reason != reasonTooLarge {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestTrialIsStopped: that a trial was killed says nothing of the chart.
func TestTrialIsStopped(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	archive := chartfile.Pack(t, "web", map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "templates/x.yaml": "{{ range 1000000000000 }}{{ end }}",
	})
	ch := &chart{}
	ch.Name, ch.Namespace = "x", "default"
	err := trial{newAPI(t), ch, overrides{}, nil, archive, install}.run(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(problem)) {
		t.Errorf("got %v", err)
	}
}
