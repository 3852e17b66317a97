package helm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// The conditions of a chart. The first two are k3s'.
const (
	jobCreated = "JobCreated"
	failed     = "Failed"
	readyType  = "Ready"
)

// Reasons of Failed and Ready.
const (
	reasonDeployed    = "Deployed"
	reasonWorking     = "Working"
	reasonInvalid     = "Invalid"    // what the chart says cannot be done
	reasonNotFetched  = "NotFetched" // the chart could not be had
	reasonTooLarge    = "TooLarge"   // its templates take more than they may
	reasonFailed      = "ReleaseFailed"
	reasonRolledBack  = "RolledBack" // an earlier revision is in force
	reasonNotRemoved  = "NotRemoved" // a deleted chart could not be uninstalled
	reasonUnsupported = "UnsupportedVersion"
)

// longest is how much of a message is kept.
const longest = 1024

// withConditions is a status with conditions that say how it went: err is nil for a chart that is in force.
func (s chartStatus) withConditions(generation int64, reason string, err error) chartStatus {
	s.ObservedGeneration = generation
	ready := condition{readyType, "True", reason, fmt.Sprintf("revision %d is deployed", s.Revision)}
	fail := condition{failed, "False", "", ""}
	switch {
	case err != nil:
		ready = condition{readyType, "False", reason, shorten(err.Error())}
		fail = condition{failed, "True", reason, ready.Message}
	case reason == reasonWorking:
		ready = condition{readyType, "False", reason, "being applied"}
	}
	s.Conditions = []condition{
		{jobCreated, "True", "Job created", "applied by coracle itself, without a Job"},
		fail, ready,
	}
	return s
}

// reason is that of Ready.
func (s chartStatus) reason() string {
	for _, c := range s.Conditions {
		if c.Type == readyType {
			return c.Reason
		}
	}
	return ""
}

// queries finds what follows an address, which may be a token.
var queries = regexp.MustCompile(`((?:https?|oci)://[^\s?"]*)\?[^\s"]*?([:,;]?(?:[\s"]|$))`)

// withoutQueries is an error as people may read it who may not read the chart.
type withoutQueries struct{ error }

// Error is the text without the queries of addresses.
func (d withoutQueries) Error() string { return queries.ReplaceAllString(d.error.Error(), "$1$2") }

func (d withoutQueries) Unwrap() error { return d.error }

// shorten cuts a message between two characters.
func shorten(s string) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + " …"
}

// write puts a status on the object if it differs from what is there.
func (c *controller) write(ctx context.Context, ch *chart, status chartStatus) error {
	if equality.Semantic.DeepEqual(ch.Status, status) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": mergePatchOf(status)})
	if err != nil {
		return fmt.Errorf("encoding a status: %w", err)
	}
	charts := c.clients.dynamic.Resource(chartsAPI).Namespace(ch.Namespace)
	_, err = charts.Patch(ctx, ch.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "coracle"}, "status")
	if apierrors.IsNotFound(err) { // the object is gone, or somebody's definition of the kind has no status of its own
		_, err = charts.Patch(ctx, ch.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "coracle"})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status: %w", err)
	}
	ch.Status = status
	return nil
}

// mergePatchOf says null where a field is empty, which removes it in a merge patch.
func mergePatchOf(s chartStatus) map[string]any {
	out := map[string]any{"conditions": s.Conditions, "observedGeneration": s.ObservedGeneration, "jobName": nil}
	for key, value := range map[string]any{
		"revision": s.Revision, "chartVersion": s.ChartVersion, "appVersion": s.AppVersion, "attempted": s.Attempted,
	} {
		if out[key] = value; value == "" || value == 0 {
			out[key] = nil
		}
	}
	return out
}

// event tells what was done, for kubectl describe. It is no harm if it is lost.
func (c *controller) event(ctx context.Context, ch *chart, kind, reason, message string) {
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", ch.Name, time.Now().UnixNano()), Namespace: ch.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: chartKind.GroupVersion().String(), Kind: chartKind.Kind,
			Namespace: ch.Namespace, Name: ch.Name, UID: ch.UID,
		},
		Type: kind, Reason: reason, Message: shorten(message),
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source:              corev1.EventSource{Component: "coracle-helm"},
		ReportingController: "coracle.io/helm",
	}
	_, _ = c.clients.core.CoreV1().Events(ch.Namespace).Create(ctx, e, metav1.CreateOptions{})
}

// setProblem keeps the list of charts that are not well. "" is well.
func (c *controller) setProblem(name cache.ObjectName, problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problems[name] == problem {
		return
	}
	c.problems[name] = problem
	if problem == "" {
		delete(c.problems, name)
	}
	if c.Report == nil {
		return
	}
	names := slices.SortedFunc(maps.Keys(c.problems), func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
	all := []FailedChart{}
	for _, n := range names {
		all = append(all, FailedChart{Name: n.String(), Problem: c.problems[n]})
	}
	c.Report(all)
}

// clearReport takes back what was reported: another server tells from now on.
func (c *controller) clearReport() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.problems) > 0 && c.Report != nil {
		c.Report([]FailedChart{})
	}
	clear(c.problems)
}
