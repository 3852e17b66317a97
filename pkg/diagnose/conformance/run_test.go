package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/exec"

	"github.com/coracle-dev/coracle/pkg/diagnose/conformance/results"
)

const junit = `<testsuite><testcase name="[It] one"/></testsuite>`

// administrator has a cluster whose administrator runs tests there. Their pod has the status, and its files can be read.
func administrator(t *testing.T, status corev1.PodStatus) (*Runner, *fake.Clientset, *bytes.Buffer) {
	t.Helper()
	r, api, notes := cluster()
	api.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.37.1"}
	api.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	api.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o, err := api.Tracker().Get(a.GetResource(), a.GetNamespace(), podName)
		if err != nil {
			return true, nil, err
		}
		pod := o.DeepCopyObject().(*corev1.Pod)
		pod.Spec.NodeName, pod.Status = "n", status
		return true, pod, nil
	})
	r.read = func(_ context.Context, name string, to *bounded) error {
		_, err := io.WriteString(to, map[string]string{results.Log: "log", results.JUnit: junit}[name])
		return err
	}
	r.Options = Options{Focus: "one", Output: t.TempDir()}
	return r, api, notes
}

// ended is the status of a pod whose tests have ended.
func ended(code int32) corev1.PodStatus {
	return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Name: tests, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}},
	}}
}

// hasPod reports whether the cluster has the tests' pod.
func hasPod(t *testing.T, api *fake.Clientset) bool {
	_, err := api.CoreV1().Pods(namespace).Get(t.Context(), podName, metav1.GetOptions{})
	return err == nil
}

// left are the kinds of objects that a run has left.
func left(t *testing.T, api *fake.Clientset) string {
	var kinds []string
	if hasPod(t, api) {
		kinds = append(kinds, "pod")
	}
	rights, ns := has(t, api)
	if rights {
		kinds = append(kinds, "rights")
	}
	if ns {
		kinds = append(kinds, "namespace")
	}
	return strings.Join(kinds, " ")
}

// TestRun: a run in which all tests pass leaves its results here and nothing in the cluster.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, api, notes := administrator(t, ended(0))
		if err := r.Run(t.Context()); err != nil || !strings.Contains(notes.String(), "passed 1, failed 0") {
			t.Errorf("%v, noted %s", err, notes)
		}
		if got := left(t, api); got != "" {
			t.Errorf("it left %s", got)
		}
		if log, err := os.ReadFile(filepath.Join(r.run.Dir(r.Output), results.Log)); err != nil || string(log) != "log" {
			t.Errorf("the log is %q, %v", log, err)
		}
	})
}

// TestFetchAgain: results are not given up while the API restarts, for minutes.
func TestFetchAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, api, _ := administrator(t, ended(0))
		read, until := r.read, time.Now().Add(patience-time.Minute)
		r.read = func(ctx context.Context, name string, to *bounded) error {
			if time.Now().Before(until) {
				_, _ = io.WriteString(to, "a part")
				return errors.New("connection refused")
			}
			return read(ctx, name, to)
		}
		if err := r.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if log, err := os.ReadFile(filepath.Join(r.run.Dir(r.Output), results.Log)); err != nil || string(log) != "log" || left(t, api) != "" {
			t.Errorf("the log is %q, %v; left %s", log, err, left(t, api))
		}
	})
}

// TestOnlyCopy: a pod with results that could not be saved is kept, without its rights. One that never had them is not.
func TestOnlyCopy(t *testing.T) {
	for name, test := range map[string]struct {
		read func(to *bounded) error
		left string
	}{
		"no connection": {func(*bounded) error { return errors.New("connection refused") }, "pod namespace"},
		"full disk": {func(to *bounded) error {
			to.to = broken{syscall.ENOSPC}
			_, err := io.WriteString(to, "log")
			return err
		}, "pod namespace"},
		"no results": {func(*bounded) error { return exec.CodeExitError{Err: errors.New("no such file"), Code: 1} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, api, notes := administrator(t, ended(0))
				r.read = func(_ context.Context, _ string, to *bounded) error { return test.read(to) }
				if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "results are not complete") {
					t.Errorf("it ended with %v", err)
				}
				const how = "kubectl -n conformance exec e2e-conformance-test -c results -- cat /tmp/results/e2e.log >e2e.log"
				if got := left(t, api); got != test.left || strings.Contains(notes.String(), how) != (test.left != "") {
					t.Errorf("left %s, want %s; noted %s", got, test.left, notes)
				}
			})
		})
	}
}

// broken is a writer that fails.
type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

// TestNobodyReads: a pipe whose reader has gone ends a run, which removes what it made. Another error of printing does not.
func TestNobodyReads(t *testing.T) {
	for failure, want := range map[error]bool{syscall.EPIPE: true, syscall.EIO: false} {
		t.Run(failure.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, api, _ := administrator(t, ended(0))
				r.Out = broken{failure}
				if err := r.Run(t.Context()); (err != nil) != want || want && !strings.Contains(err.Error(), "nobody reads its output") {
					t.Errorf("it ended with %v", err)
				}
				if got := left(t, api); got != "" {
					t.Errorf("it left %s", got)
				}
			})
		})
	}
}

// TestFormerResults: a run that another one keeps away leaves the other's results alone.
func TestFormerResults(t *testing.T) {
	r, api, _ := administrator(t, ended(0))
	if err := api.Tracker().Add(&corev1.Namespace{ObjectMeta: meta(namespace)}); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(results.Run{Version: "v1.37.1"}.Dir(r.Output), results.Log)
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--cleanup") {
		t.Errorf("a second run: %v", err)
	}
	if _, err := os.Stat(log); err != nil {
		t.Error(err)
	}
}

// TestOutput: a directory in which nothing can be made is told before a test runs, and leaves nothing.
func TestOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, api, _ := administrator(t, ended(0))
		r.Output = filepath.Join(r.Output, "file")
		if err := os.WriteFile(r.Output, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "choose another --output") {
			t.Errorf("it ended with %v", err)
		}
		if got := left(t, api); got != "" {
			t.Errorf("it left %s", got)
		}
	})
}

// TestCode: a run whose runner failed is none for a certificate, even if no test failed.
func TestCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, notes := administrator(t, ended(3))
		r.Focus = results.CertifiedFocus
		ready := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
		for _, name := range []string{"a", "b"} {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: ready}
			if _, err := r.api.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the run ended with code 3") {
			t.Errorf("it ended with %v", err)
		}
		readme, err := os.ReadFile(filepath.Join(r.run.Dir(r.Output), "README.md"))
		if err != nil || !strings.Contains(string(readme), "**Not a run for a certificate**") || !strings.Contains(notes.String(), "this is none") {
			t.Errorf("README.md is %s, %v; noted %s", readme, err, notes)
		}
	})
}

// TestSilentNode: a node that takes the pod and says nothing of it is named, and the pod goes to none that keeps new pods away.
func TestSilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, api, _ := administrator(t, corev1.PodStatus{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := r.Run(ctx); err == nil || !strings.Contains(err.Error(), "node n says nothing of the tests' pod") {
			t.Errorf("it ended with %v", err)
		}
		if got := left(t, api); got != "" {
			t.Errorf("it left %s", got)
		}
		for _, toleration := range r.pod().Spec.Tolerations {
			if toleration.Effect != corev1.TaintEffectNoExecute {
				t.Errorf("the pod goes to nodes with a taint for %q", toleration.Effect)
			}
		}
	})
}

// TestDenied: an API that starts may deny everything for a moment. One that goes on is an error.
func TestDenied(t *testing.T) {
	for name, denied := range map[string]time.Duration{"for a moment": denyPatience / 2, "for good": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, api := run(t)
				began := time.Now()
				api.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					switch past := time.Since(began); {
					case past < 5*time.Minute:
						return true, nil, apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "get", corev1.Resource("pods"), podName, "", 0, true)
					case past < 5*time.Minute+denied:
						return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), podName, errors.New("not yet"))
					}
					return false, nil, nil
				})
				if _, err := r.look(t.Context()); (err != nil) != (denied > denyPatience) || err != nil && !apierrors.IsForbidden(err) {
					t.Errorf("%v", err)
				}
				if took := time.Since(began); took > 5*time.Minute+denyPatience+5*time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}
