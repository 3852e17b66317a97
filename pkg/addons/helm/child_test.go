package helm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/coracle-dev/coracle/test/chartfile"
)

// lastWords is an environment variable: what a child writes to standard error before it ends as Go's runtime ends it.
const lastWords = "CORACLE_TEST_LAST_WORDS"

// patient are limits for tests: they have to end on slow machines, too, and for the same reason.
var patient = renderLimits{256 << 20, 20, 1 << 20, 5 * time.Minute}

// greedy is an environment variable: a process with it takes more memory at once than it may have.
const greedy = "CORACLE_TEST_GREEDY"

// TestMain lets this executable be the child process.
func TestMain(m *testing.M) {
	if os.Getenv(greedy) != "" {
		patient.impose()
		piece := make([]byte, patient.Memory*4)
		piece[len(piece)-1] = 1
		os.Exit(0)
	}
	if os.Args[0] == ChildProgram {
		if words := os.Getenv(lastWords); words != "" {
			fmt.Fprint(os.Stderr, words)
			os.Exit(exitFatal)
		}
		os.Exit(RunChild(nil))
	}
	os.Exit(m.Run())
}

// using has the child of a bench reach an API server.
func (b *bench) using(t *testing.T, server string) *bench {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	if b.clients.transport, err = rest.TransportFor(&rest.Config{Host: server}); err != nil {
		t.Fatal(err)
	}
	b.clients.server = u
	return b
}

// requestFor installs an archive as release default/x.
func requestFor(step step, archive []byte, limits renderLimits) request {
	ch := &chart{}
	ch.Name, ch.Namespace = "x", "default"
	return request{Chart: ch, Step: step, Archive: archive, Hash: "now", Limits: limits}
}

// ignore is for tests that do not look at what is rendered.
func ignore(renderedChart) error { return nil }

// TestRenderLimits renders charts that would end this process.
func TestRenderLimits(t *testing.T) {
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
	for _, tt := range []struct {
		name, template, set string
		values              map[string]any
		cpu                 int
		reason, want        string // "" is no error
	}{
		{"good", object + "data: {x: {{ .Values.x }}}\n", "", map[string]any{"x": "y"}, 20, "", ""},
		{"broken", "{{ end }}", "", nil, 20, "", "unexpected {{end}}"},
		{"a mistake", `{{ fail "no" }}`, "", nil, 20, "", "): no"},
		{"recursion", "{{ tpl .Values.x . }}", "", map[string]any{"x": "{{ tpl .Values.x . }}", "warns": map[string]any{"of": "this"}}, 20, reasonTooLarge, "more than"},
		{"much memory", "{{ range 1000000000000 }}x: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n{{ end }}", "", nil, 20, reasonTooLarge, "more than"},
		{"no end", "{{ range 1000000000000 }}{{ end }}", "", nil, 2, reasonTooLarge, "more than"},
		{"much output", object + `data: {x: {{ repeat 1100000 "a" }}}`, "", nil, 20, reasonTooLarge, "more than"},
		{"an integer is one", object + `{{ if eq .Values.count 1 }}{{ fail "it is" }}{{ end }}`, "count", map[string]any{"count": 1}, 20, "", "it is"},
		{"a float is one", object + `{{ if eq .Values.count 1.0 }}{{ fail "it is" }}{{ end }}`, "", map[string]any{"count": 1}, 20, "", "it is"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := newAPI(t)
			archive := chartfile.Pack(t, "web", map[string]string{
				"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "values.yaml": "warns: of this\n", "templates/x.yaml": tt.template,
			})
			r := requestFor(install, archive, patient)
			r.Limits.CPU, r.Values = tt.cpu, tt.values
			if tt.set != "" {
				r.Chart.Spec = spec(t, "set: {"+tt.set+": 1}")
			}
			began := time.Now()
			res, err := newBench(nil).using(t, api.URL).runChild(t.Context(), r, ignore)
			t.Logf("after %s: %v", time.Since(began).Round(time.Millisecond), err)
			var p problem
			if errors.As(err, &p); p.reason != tt.reason || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
			if err == nil && (res.Revision != 1 || res.ChartVersion != "1.0.0" || !res.Begun) {
				t.Errorf("result is %+v", res)
			}
			if names := api.names("secrets"); (len(names) > 0) != (err == nil) {
				t.Errorf("revisions are %v", names)
			}
		})
	}
}

// TestSecondRenderingIsLimited: a chart that is installed anew is rendered before and after its release is uninstalled, and can tell the two apart.
func TestSecondRenderingIsLimited(t *testing.T) {
	api := newAPI(t)
	b := newBench(nil).using(t, api.URL)
	run := func(step step, template string) (result, error) {
		r := requestFor(step, chartfile.Pack(t, "web", map[string]string{
			"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "templates/x.yaml": template,
		}), patient)
		r.Limits.CPU, r.Newest = 2, 1
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		res, err := b.runChild(ctx, r, ignore)
		return res, errors.Join(err, ctx.Err())
	}
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
	if _, err := run(install, object); err != nil {
		t.Fatal(err)
	}
	_, err := run(reinstall, object+`{{ if not (lookup "v1" "ConfigMap" "default" "x") }}{{ range 1000000000000 }}{{ end }}{{ end }}`)
	if err == nil || errors.Is(err, context.DeadlineExceeded) || len(api.names("configmaps")) > 0 {
		t.Errorf("%v; there are ConfigMaps %v", err, api.names("configmaps"))
	}
}

// TestOneLargeAllocation: the limit of memory holds for a single allocation, too, before the memory is used.
func TestOneLargeAllocation(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), greedy+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != exitFatal || !strings.Contains(string(out), "out of memory") {
		t.Errorf("%v: %.300s", err, out)
	}
}

// TestChildIsKilled: that a child was killed says nothing about the chart.
func TestChildIsKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	archive := chartfile.Pack(t, "web", map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "templates/x.yaml": "{{ range 1000000000000 }}{{ end }}",
	})
	_, err := newBench(nil).using(t, newAPI(t).URL).runChild(ctx, requestFor(install, archive, defaultLimits), ignore)
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(problem)) {
		t.Errorf("got %v", err)
	}
}

// TestRenderingTakesLong ends a child that does not render in time, and lets one go on that has rendered.
func TestRenderingTakesLong(t *testing.T) {
	archive := chartfile.Pack(t, "web", map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "templates/x.yaml": "{{ range 1000000000000 }}{{ end }}",
	})
	limits := defaultLimits
	limits.Time = 300 * time.Millisecond
	b := newBench(nil).using(t, newAPI(t).URL)
	_, err := b.runRendering(t.Context(), requestFor(install, archive, limits), ignore)
	if err == nil || !strings.Contains(err.Error(), "rendering took longer than 300ms") || errors.As(err, new(problem)) {
		t.Errorf("got %v", err)
	}
	limits.Time = time.Minute
	_, err = b.runRendering(t.Context(), requestFor(install, simple(t, "1.0.0"), limits), func(renderedChart) error {
		select {
		case b.memorySlot <- struct{}{}: // another chart may be rendered now
			<-b.memorySlot
			return nil
		default:
			return errors.New("no other chart can be rendered")
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestChildDies for reasons that are not the chart's, and one that is. Values of the chart must not be told.
func TestChildDies(t *testing.T) {
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
			b := newBench(nil).using(t, "http://127.0.0.1:1")
			_, err := b.runChild(t.Context(), requestFor(install, []byte("an archive"), patient), ignore)
			if err == nil {
				t.Fatal("no error")
			}
			if tooLarge := errors.As(err, new(problem)); tooLarge != (tt.want == "") {
				t.Errorf("it is the chart's fault: %v", tooLarge)
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v", err)
			}
			if _, err := b.runChild(t.Context(), requestFor(uninstall, nil, renderLimits{}), ignore); err == nil || errors.As(err, new(problem)) {
				t.Errorf("without rendering: got %v", err)
			}
		})
	}
}

// TestExhausted: where the kernel denies overcommitment, others may have the memory.
func TestExhausted(t *testing.T) {
	for _, tt := range []struct {
		line         string
		free, denied bool
	}{
		{"", false, false},
		{"fatal error: newosproc", false, false},
		{"fatal error: stack overflow", true, true},
		{"fatal error: runtime: out of memory", true, false},
		{"fatal error: runtime: cannot allocate memory", true, false},
	} {
		if free, denied := exhausted(tt.line, false), exhausted(tt.line, true); free != tt.free || denied != tt.denied {
			t.Errorf("%q: %v, and %v where overcommitment is denied", tt.line, free, denied)
		}
	}
}

// TestNoAPI: an error of the API is no problem of the chart, and the action may be tried again.
func TestNoAPI(t *testing.T) {
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer busy.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, server := range map[string]string{"no API": gone.URL, "a busy API": busy.URL} {
		for _, step := range []step{install, upgrade, reinstall, markInterrupted, uninstall} {
			res, err := newBench(nil).using(t, server).runChild(t.Context(), requestFor(step, simple(t, "1.0.0"), patient), ignore)
			if err == nil || errors.As(err, new(problem)) || res.Begun {
				t.Errorf("%s, %s: got %v, %+v", name, step, err, res)
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args, cmd.Stdin = []string{ChildProgram}, strings.NewReader("{")
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != exitUsage {
		t.Errorf("what it cannot read: %v", err)
	}
}

// TestNothingIsAskedAfterTheEnd: a child must not write while another server leads, even if it is not killed.
func TestNothingIsAskedAfterTheEnd(t *testing.T) {
	asked := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"SecretList","apiVersion":"v1","items":[]}`))
	}))
	defer api.Close()
	ctx, end := context.WithCancel(t.Context())
	b := newBench(nil).using(t, api.URL)
	file, err := b.serveAPI(ctx, b.clients)
	if err != nil {
		t.Fatal(err)
	}
	c, err := connectToParent(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.newRelease(t.Context(), &chart{}, overrides{})
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

// TestDeploy: a child that could not work is tried again, whatever the policy; an archive that is no chart is told as such.
func TestDeploy(t *testing.T) {
	for _, tt := range []struct {
		name, reason, attempted string
		content                 []byte
	}{
		{"no API", "", "", simple(t, "1.0.0")},
		{"no chart", reasonNotFetched, "before", []byte("no chart")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(nil).using(t, "http://127.0.0.1:1")
			ch := inlineChart(tt.content)
			ch.Status.Attempted = "before"
			err := b.deploy(t.Context(), ch, desired{hash: "now", source: source{spec: ch.Spec}}, install)
			var p problem
			if errors.As(err, &p); err == nil || p.reason != tt.reason || ch.Status.Attempted != tt.attempted {
				t.Errorf("got %v; attempted is %q", err, ch.Status.Attempted)
			}
		})
	}
}
