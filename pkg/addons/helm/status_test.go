package helm

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

func TestTold(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		err          error
		want         string
	}{
		{"in force", reasonDeployed, nil, "JobCreated=True Failed=False Ready=True:Deployed"},
		{"being applied", reasonWorking, nil, "JobCreated=True Failed=False Ready=False:Working"},
		{"failed", reasonFailed, errors.New("x"), "JobCreated=True Failed=True Ready=False:ReleaseFailed"},
	} {
		s := chartStatus{Revision: 3}.withConditions(7, tt.reason, tt.err)
		var got []string
		for _, c := range s.Conditions {
			text := c.Type + "=" + c.Status
			if c.Type == readyType {
				text += ":" + c.Reason
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != tt.want || s.ObservedGeneration != 7 {
			t.Errorf("%s: told %s of generation %d, want %s", tt.name, got, s.ObservedGeneration, tt.want)
		}
	}
}

// TestPatchRemoves: what is empty must not stay on the object.
func TestPatchRemoves(t *testing.T) {
	data, err := json.Marshal(mergePatchOf(chartStatus{Attempted: "x"}))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"appVersion":null,"attempted":"x","chartVersion":null,"conditions":null,"jobName":null,"observedGeneration":0,"revision":null}`
	if string(data) != want {
		t.Errorf("the patch is %s, want %s", data, want)
	}
}

func TestDiscreet(t *testing.T) {
	for text, want := range map[string]string{
		`https://a.test/index.yaml?token=s3cret answers 404`:           `https://a.test/index.yaml answers 404`,
		`reading https://a.test?token=s3cret: no YAML`:                 `reading https://a.test: no YAML`,
		`Get "http://a.test/x?token=s3cret&b=c": EOF`:                  `Get "http://a.test/x": EOF`,
		`oci://a.test/x?s3cret`:                                        `oci://a.test/x`,
		`is it https://a.test/x, or what? https://b.test/y?s3cret, no`: `is it https://a.test/x, or what? https://b.test/y, no`,
	} {
		if got := (withoutQueries{errors.New(text)}).Error(); got != want {
			t.Errorf("%s: got %s", text, got)
		}
	}
}

func TestShorten(t *testing.T) {
	long := strings.Repeat("ü", longest)
	if got := shorten(long); len(got) > longest+5 || !utf8.ValidString(got) || !strings.HasSuffix(got, " …") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if shorten("short") != "short" {
		t.Error("a short message was changed")
	}
}

func TestTellReportsTheIll(t *testing.T) {
	var reports [][]FailedChart
	c := newController(HelmCharts{Report: func(all []FailedChart) { reports = append(reports, all) }}, nil, nil)
	a, b := cache.NewObjectName("x", "a"), cache.NewObjectName("x", "b")
	for _, tell := range []struct {
		name    cache.ObjectName
		problem string
	}{{a, ""}, {b, "broken"}, {b, "broken"}, {a, "broken, too"}, {b, ""}} {
		c.setProblem(tell.name, tell.problem)
	}
	c.clearReport()
	c.clearReport()
	want := `[[{"name":"x/b","problem":"broken"}],[{"name":"x/a","problem":"broken, too"},{"name":"x/b","problem":"broken"}],[{"name":"x/a","problem":"broken, too"}],[]]`
	if got := text(t, reports); got != want {
		t.Errorf("reported %s, want %s", got, want)
	}
}

// TestMatters: what we write ourselves must not have a chart worked at again.
func TestMatters(t *testing.T) {
	base := func() *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetGeneration(1)
		return u
	}
	for _, tt := range []struct {
		name   string
		change func(*unstructured.Unstructured)
		want   bool
	}{
		{"nothing", func(*unstructured.Unstructured) {}, false},
		{"status", func(u *unstructured.Unstructured) { u.Object["status"] = map[string]any{"revision": int64(2)} }, false},
		{"finalizer", func(u *unstructured.Unstructured) { u.SetFinalizers([]string{finalizer}) }, false},
		{"some annotation", func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"a": "b"}) }, false},
		{"spec", func(u *unstructured.Unstructured) { u.SetGeneration(2) }, true},
		{"unmanaged", func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{unmanagedAnnotation: ""}) }, true},
		{"again", func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{retryAnnotation: "1"}) }, true},
	} {
		changed := base()
		tt.change(changed)
		if got := relevant(base(), changed); got != tt.want {
			t.Errorf("%s: matters is %v", tt.name, got)
		}
	}
}

func TestSettled(t *testing.T) {
	for _, tt := range []struct {
		name            string
		policy          failurePolicy
		reason          string
		conflict, tried bool
		want            bool
	}{
		{"rolled back", policyUnset, reasonRolledBack, false, true, true},
		{"too large", policyRetry, reasonTooLarge, false, true, true},
		{"not fetched", policyAbort, reasonNotFetched, false, true, false},
		{"abort", policyAbort, reasonFailed, false, true, true},
		{"abort, before anything was begun", policyAbort, reasonFailed, false, false, false},
		{"failed", policyUnset, reasonFailed, false, true, false},
		{"a conflict", policyUnset, reasonFailed, true, true, true},
		{"a conflict, reinstall", policyReinstall, reasonFailed, true, true, false},
	} {
		if got := settled(tt.policy, problem{tt.reason, nil}, tt.conflict, tt.tried); got != tt.want {
			t.Errorf("%s: settled is %v", tt.name, got)
		}
	}
}

func TestRefs(t *testing.T) {
	ch := &chart{Spec: spec(t, `{valuesSecrets: [{name: a}, {name: b, ignoreUpdates: true}], authSecret: {name: c}, repoCAConfigMap: {name: d}}`)}
	ch.Namespace = "x"
	got := refsOf(ch, overrides{ValuesSecrets: []valuesSecret{{Name: "e"}}}, "web.tgz")
	want := []ref{{"secrets", "x", "a"}, {"secrets", "x", "e"}, {"secrets", "x", "c"}, {"configmaps", "x", "d"}, {"", "", "web.tgz"}}
	for i, r := range want {
		if i >= len(got) || got[i] != r {
			t.Fatalf("refers to %v, want %v", got, want)
		}
	}
}
