package helm

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"helm.sh/helm/v4/pkg/release/common"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// TestSuspect: a chart that may have ended the process leaves people time to delete it.
func TestSuspect(t *testing.T) {
	const now = "now"
	for _, tt := range []struct {
		name, attempted, reason string
		history                 []revision
		want                    time.Duration
	}{
		{"new", "", "", nil, 0},
		{"ended before there was a revision", now, reasonWorking, nil, afterCrash},
		{"the same of an upgrade", now, reasonWorking, []revision{{version: 1, status: common.StatusDeployed, hash: "old"}}, afterCrash},
		{"rendered", now, reasonWorking, []revision{{version: 1, status: common.StatusPendingInstall, hash: now}}, 0},
		{"changed since", "old", reasonWorking, nil, 0},
		{"failed", now, reasonFailed, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := logrus.New()
				log.SetOutput(io.Discard)
				c := newController(HelmCharts{}, nil, log)
				defer c.queue.ShutDown()
				ch := &chart{Status: chartStatus{Attempted: tt.attempted, Conditions: []condition{{Type: readyType, Reason: tt.reason}}}}
				w := wish{hash: now, history: tt.history}
				if got := c.suspect(ch, w); got != tt.want {
					t.Errorf("waits %s, want %s", got, tt.want)
				}
				time.Sleep(tt.want / 2)
				if got := c.suspect(ch, w); got != tt.want/2 {
					t.Errorf("then waits %s, want %s", got, tt.want/2)
				}
				time.Sleep(tt.want / 2)
				if got := c.suspect(ch, w); got > 0 {
					t.Errorf("still waits %s", got)
				}
			})
		})
	}
}

// TestOrderlyEnd: whoever stops in good order, or leads no more, does not leave a suspect.
func TestOrderlyEnd(t *testing.T) {
	const now = "now"
	name := cache.NewObjectName("x", "web")
	for _, tt := range []struct {
		name, attempted, reason, made string
		begun                         map[cache.ObjectName]begun
		cleared                       bool
	}{
		{"before there was a revision", now, reasonWorking, "other", map[cache.ObjectName]begun{name: {now, time.Now()}}, true},
		{"rendered", now, reasonWorking, now, map[cache.ObjectName]begun{name: {now, time.Now()}}, false},
		{"failed", now, reasonFailed, "other", map[cache.ObjectName]begun{name: {now, time.Now()}}, false},
		{"another server's", "theirs", reasonWorking, "other", map[cache.ObjectName]begun{name: {now, time.Now()}}, false},
		{"suspect already", now, reasonWorking, "other", map[cache.ObjectName]begun{name: {now, time.Now().Add(afterCrash)}}, false},
		{"not begun here", now, reasonWorking, "other", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := object("web", map[string]any{"chart": "web", "targetNamespace": "apps", "helmVersion": "v2"})
			u.SetResourceVersion("7")
			u.Object["status"] = map[string]any{"attempted": tt.attempted, "conditions": []any{map[string]any{"type": readyType, "reason": tt.reason}}}
			revision := revisionOf("x")
			revision.Labels[hashLabel] = tt.made
			b := newBench([]*unstructured.Unstructured{u}, revision)
			b.last = func(context.Context) (*clients, error) { return b.clients, nil }
			b.begun = tt.begun
			ended, end := context.WithCancel(t.Context())
			end()
			if err := b.reconcile(ended, name); err != nil {
				t.Fatal(err)
			}
			if left := outline(b.now(t, "web")).Status.Attempted; (left == "") != tt.cleared {
				t.Errorf("attempted is %q", left)
			}
			for _, action := range b.clients.dynamic.(*dynamicfake.FakeDynamicClient).Actions() {
				if patch, ok := action.(clienttesting.PatchAction); ok && !strings.Contains(string(patch.GetPatch()), `"resourceVersion":"7"`) {
					t.Errorf("what others wrote meanwhile may be lost: %s", patch.GetPatch())
				}
			}
		})
	}
}
