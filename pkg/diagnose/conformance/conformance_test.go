package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestFollow: a log whose connection breaks is taken up again, and no line is lost or printed twice.
func TestFollow(t *testing.T) {
	line := func(nano int, text string) string { return fmt.Sprintf("2026-11-29T12:00:00.%09dZ %s\n", nano, text) }
	first := line(1, "one") + line(2, "two") + line(2, "\x1b[2Jthree")
	var logs, looks atomic.Int32
	mux := http.NewServeMux()
	pod := "/api/v1/namespaces/" + namespace + "/pods/" + podName
	mux.HandleFunc(pod+"/log", func(w http.ResponseWriter, r *http.Request) {
		if logs.Add(1) == 1 {
			_, _ = io.WriteString(w, first)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		if since := r.URL.Query().Get("sinceTime"); since != "2026-11-29T12:00:00Z" {
			t.Errorf("it asked for lines since %q", since)
		}
		_, _ = io.WriteString(w, first+line(2, "four")+line(3, strings.Repeat("x", 100<<10)))
	})
	mux.HandleFunc(pod, func(w http.ResponseWriter, _ *http.Request) {
		state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		switch looks.Add(1) {
		case 1:
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		case 2:
		default:
			state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: tests, State: state}}}})
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	var out, notes bytes.Buffer
	r, err := Connect(&rest.Config{Host: server.URL}, Options{}, &out, &notes)
	if err != nil {
		t.Fatal(err)
	}
	code, err := r.follow(t.Context())
	if want := "one\ntwo\n?[2Jthree\nfour\n" + strings.Repeat("x", 100<<10) + "\n"; code != 3 || err != nil || out.String() != want {
		t.Errorf("code %d, %v, printed %.200q", code, err, out.String())
	}
	if !strings.Contains(notes.String(), "the API does not answer") {
		t.Errorf("noted %q", notes.String())
	}
}

func TestBounded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	b := &bounded{to: &out, most: 5, stop: cancel}
	if _, err := io.WriteString(b, "12345"); err != nil || ctx.Err() != nil {
		t.Errorf("%v", err)
	}
	if _, err := io.WriteString(b, "6"); err == nil || ctx.Err() == nil || out.String() != "12345" {
		t.Errorf("more than the most: %v, %s", err, out.String())
	}
	if _, err := io.WriteString(b, ""); err == nil {
		t.Error("it goes on after an error")
	}
}

// TestWaits: what does not heal is told in a sentence with the fix.
func TestWaits(t *testing.T) {
	for reason, want := range map[string]struct {
		text  string
		final bool
	}{
		"ErrImagePull":               {"node n cannot pull image i: ErrImagePull: no such ?[1mthing. Name one that it can pull with --image", false},
		"InvalidImageName":           {`"i" is no name of an image`, true},
		"ErrImageNeverPull":          {"does not accept image i", true},
		"CreateContainerConfigError": {"container tests of the tests' pod does not start on node n", false},
		"ContainerCreating":          {"", false},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: tests, Image: "i", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no such\n\x1b[1mthing"}},
		}}}}
		err, final := waits(pod)
		if final != want.final || (err == nil) != (want.text == "") || err != nil && !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v, %v", reason, err, final)
		}
	}
	if text := said("R", strings.Repeat("ä", 5000)); len([]rune(text)) > 1000 {
		t.Errorf("it says %d characters", len(text))
	}
}

// TestEnvironment: the pod asks nothing that a restricted namespace forbids, and the runner gets what it understands.
func TestEnvironment(t *testing.T) {
	r := &Runner{Options: Options{Image: "i", Focus: "f", Skip: "s", Parallel: 3, DryRun: true}}
	got := map[string]string{}
	for _, e := range r.pod().Spec.Containers[0].Env {
		got[e.Name] = e.Value
	}
	for name, want := range map[string]string{
		"E2E_FOCUS": "f", "E2E_SKIP": "s", "E2E_EXTRA_GINKGO_ARGS": "-v --procs=3", "E2E_DRYRUN": "true", "E2E_PARALLEL": "false", "RESULTS_DIR": resultsDir,
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for _, c := range r.pod().Spec.Containers {
		if s := c.SecurityContext; !*s.RunAsNonRoot || *s.AllowPrivilegeEscalation || len(s.Capabilities.Drop) != 1 || c.Image != "i" {
			t.Errorf("container %s: %+v", c.Name, s)
		}
	}
}

func TestSchedulable(t *testing.T) {
	ready := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	for name, n := range map[string]corev1.Node{
		"not ready": {}, "cordoned": {Spec: corev1.NodeSpec{Unschedulable: true}, Status: ready},
		"tainted": {Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}}, Status: ready},
	} {
		if schedulable(n) {
			t.Errorf("a node that is %s takes pods", name)
		}
	}
	if !schedulable(corev1.Node{Status: ready, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectPreferNoSchedule}}}}) {
		t.Error("a Ready node takes no pods")
	}
}
