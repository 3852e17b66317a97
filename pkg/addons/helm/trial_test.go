package helm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-dev/coracle/test/chartfile"
)

// lastWords is a variable of the environment: what a trial says before it ends as Go ends a process.
const lastWords = "CORACLE_TEST_LAST_WORDS"

// patient are limits for tests: they have to end on slow machines, too, and for the same reason.
var patient = limits{256 << 20, 20, 1 << 20, 5 * time.Minute}

// TestMain lets this executable be what a trial runs in.
func TestMain(m *testing.M) {
	if os.Args[0] == TrialProgram {
		if words := os.Getenv(lastWords); words != "" {
			fmt.Fprint(os.Stderr, words)
			os.Exit(fatal)
		}
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
	return kubeconfigOf(t, api.URL)
}

// kubeconfigOf writes a kubeconfig for a server.
func kubeconfigOf(t *testing.T, server string) (kubeconfig string) {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
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
		cpu            int
		tooLarge       bool
	}{
		{"good", object + "data: {x: {{ .Values.x }}}\n", map[string]any{"x": "y"}, 20, false},
		{"broken", "{{ end }}", nil, 20, false},
		{"a mistake", `{{ fail "no" }}`, nil, 20, false},
		{"recursion", "{{ tpl .Values.x . }}", map[string]any{"x": "{{ tpl .Values.x . }}", "warns": map[string]any{"of": "this"}}, 20, true},
		{"much memory", "{{ range 1000000000000 }}x: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n{{ end }}", nil, 20, true},
		{"no end", "{{ range 1000000000000 }}{{ end }}", nil, 2, true},
		{"much output", object + `data: {x: {{ repeat 1100000 "a" }}}`, nil, 20, true},
		{"an integer is one", object + `{{ if eq .Values.n 1 }}data: {x: {{ repeat 1100000 "a" }}}{{ end }}`, map[string]any{"n": int64(1)}, 20, true},
		{"a float is one", object + `{{ if eq .Values.n 1.0 }}data: {x: {{ repeat 1100000 "a" }}}{{ end }}`, map[string]any{"n": float64(1)}, 20, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ch := &chart{}
			ch.Name, ch.Namespace = "x", "default"
			archive := chartfile.Pack(t, "web", map[string]string{
				"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "values.yaml": "warns: of this\n", "templates/x.yaml": tt.template,
			})
			began := time.Now()
			most := patient
			most.CPU = tt.cpu
			err := trial{kubeconfig, ch, overrides{}, tt.values, archive, install, most}.run(t.Context())
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
	err := trial{newAPI(t), ch, overrides{}, nil, archive, install, ample}.run(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(problem)) {
		t.Errorf("got %v", err)
	}
}

// TestTrialDies for reasons that are not the chart's, and one that is. Nothing of the chart may be told.
func TestTrialDies(t *testing.T) {
	const trace = "\n\ngoroutine 1 [running]:\nhunter2\n"
	for _, tt := range []struct{ name, words, want string }{
		{"no thread", "runtime: failed to create new OS thread (have 5 already; errno=11)\nhunter2" + trace, "errno=11"},
		{"two at a map", "fatal error: concurrent map writes" + trace, "concurrent map writes"},
		{"a panic", "panic: hunter2\nfatal error: stack overflow" + trace, "exit status 2"},
		{"no reason", "", "exit status 2"},
		{"much before it", strings.Repeat("hunter2 ", 10000) + "\nfatal error: stack overflow" + trace, "exit status 2"},
		{"the stack", "runtime: goroutine stack exceeds 67108864-byte limit\nhunter2" + trace, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(lastWords, tt.words+" ")
			err := trial{Most: patient}.run(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			if tooLarge := errors.As(err, new(problem)); tooLarge != (tt.want == "") {
				t.Errorf("it is the chart's fault: %v", tooLarge)
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestTookAll: where memory is rationed, it may be others who have it.
func TestTookAll(t *testing.T) {
	for _, tt := range []struct {
		line           string
		free, rationed bool
	}{
		{"", false, false},
		{"fatal error: newosproc", false, false},
		{"fatal error: stack overflow", true, true},
		{"fatal error: runtime: out of memory", true, false},
		{"fatal error: runtime: cannot allocate memory", true, false},
	} {
		if free, rationed := tookAll(tt.line, false), tookAll(tt.line, true); free != tt.free || rationed != tt.rationed {
			t.Errorf("%q: %v, and %v where memory is rationed", tt.line, free, rationed)
		}
	}
}

// TestTrialDoesNotBegin, and says so, unless the chart is what keeps it from it.
func TestTrialDoesNotBegin(t *testing.T) {
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer busy.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	good, none := simple(t, "1.0.0"), filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct {
		name, kubeconfig string
		archive          []byte
		unproven         bool
	}{
		{"rendered", newAPI(t), good, false},
		{"no kubeconfig", none, good, true},
		{"no API", kubeconfigOf(t, gone.URL), good, true},
		{"a busy API", kubeconfigOf(t, busy.URL), good, true},
		{"no chart", none, []byte("no chart"), false},
	} {
		for _, step := range []step{install, upgrade} {
			ch := &chart{}
			ch.Name, ch.Namespace = "x", "default"
			err := trial{tt.kubeconfig, ch, overrides{}, nil, tt.archive, step, patient}.run(t.Context())
			if errors.Is(err, errUnproven) != tt.unproven || !tt.unproven && err != nil {
				t.Errorf("%s, %s: got %v", tt.name, step, err)
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args, cmd.Stdin = []string{TrialProgram}, strings.NewReader("{")
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != unproven {
		t.Errorf("what it cannot read: %v", err)
	}
}

// TestProve: a trial that did not begin is tried again, whatever the policy; an archive that is no chart is told as such.
func TestProve(t *testing.T) {
	b := newBench(nil)
	b.Kubeconfig = filepath.Join(t.TempDir(), "none")
	ch := &chart{Status: chartStatus{Attempted: "before"}}
	if _, err := b.prove(t.Context(), ch, wish{hash: "now"}, install, simple(t, "1.0.0")); !errors.Is(err, errUnproven) || ch.Status.Attempted != "" {
		t.Errorf("got %v; attempted is %q", err, ch.Status.Attempted)
	}
	var p problem
	if _, err := b.prove(t.Context(), ch, wish{hash: "now"}, install, []byte("no chart")); !errors.As(err, &p) || p.reason != reasonNotFetched {
		t.Errorf("got %v", err)
	}
}
