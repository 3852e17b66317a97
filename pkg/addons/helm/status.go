package helm

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
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
	reasonInvalid     = "Invalid"    // the HelmChart contains a mistake
	reasonNotFetched  = "NotFetched" // the chart could not be fetched or read
	reasonTooLarge    = "TooLarge"   // rendering exceeded a limit
	reasonFailed      = "ReleaseFailed"
	reasonRolledBack  = "RolledBack" // an earlier revision is deployed
	reasonNotRemoved  = "NotRemoved" // a deleted chart could not be uninstalled
	reasonUnsupported = "UnsupportedVersion"
	reasonNoAccount   = "NoServiceAccount" // it needs one in its namespace, or the one that it names is missing
)

// longest is the length of a message in bytes beyond which it is cut.
const longest = 1024

// withConditions returns the status with conditions for a reason. err is nil for a chart that is deployed or in progress.
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

// reason is the reason of the condition Ready.
func (s chartStatus) reason() string {
	for _, c := range s.Conditions {
		if c.Type == readyType {
			return c.Reason
		}
	}
	return ""
}

// queries matches addresses with their queries, which may be tokens.
var queries = regexp.MustCompile(`((?:https?|oci)://[^\s?"]*)\?[^\s"]*?([:,;]?(?:[\s"]|$))`)

// withoutQueries is an error for people who can read events and logs, but not the chart.
type withoutQueries struct{ error }

// Error returns the text without the queries of addresses.
func (d withoutQueries) Error() string { return queries.ReplaceAllString(d.error.Error(), "$1$2") }

func (d withoutQueries) Unwrap() error { return d.error }

// shorten cuts a message of more than longest bytes.
func shorten(s string) string { return cut(s, longest) }

// cut cuts a text of more than most bytes between two characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}

// write writes the status to the API if it differs from the stored one.
func (c *controller) write(ctx context.Context, ch *chart, status chartStatus) error {
	if equality.Semantic.DeepEqual(ch.stored, status) {
		return nil
	}
	patch := map[string]any{"status": mergePatchOf(status)}
	charts := c.clients.dynamic.Resource(chartsAPI).Namespace(ch.Namespace)
	err := kube.MergePatch(ctx, charts, ch.Name, patch, "status")
	if apierrors.IsNotFound(err) { // the object is deleted, or somebody's CRD has no status subresource
		err = kube.MergePatch(ctx, charts, ch.Name, patch)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status: %w", err)
	}
	ch.Status, ch.stored = status, status
	return nil
}

// mergePatchOf returns a status in which empty fields are null, which removes them in a merge patch.
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

// event creates an Event, for kubectl describe. Errors are ignored.
func (c *controller) event(ctx context.Context, ch *chart, kind, reason, message string) {
	apiVersion, kindOfChart := chartKind.ToAPIVersionAndKind()
	about := corev1.ObjectReference{APIVersion: apiVersion, Kind: kindOfChart, Namespace: ch.Namespace, Name: ch.Name, UID: ch.UID}
	_ = kube.SendEvent(ctx, c.clients.core, corev1.EventSource{Component: "coracle-helm"}, about, kind, reason, shorten(message))
}

// setProblem sets or, with "", clears the problem of a chart, and reports all problems if it changed.
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

// clearReport withdraws all reports when this server stops leading.
func (c *controller) clearReport() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.problems) > 0 && c.Report != nil {
		c.Report([]FailedChart{})
	}
	clear(c.problems)
}
