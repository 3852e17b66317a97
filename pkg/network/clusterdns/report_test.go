package clusterdns

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestReport(t *testing.T) {
	r := Report()
	if got := r.Lines(json.RawMessage(`{"listen":[]}`)); got != nil {
		t.Errorf("before it listens the lines are %q", got)
	}
	got := r.Lines(json.RawMessage(`{"listen":["10.42.0.1:53"],"upstreams":["192.0.2.53"],"loaded":"2026-11-21T10:00:30Z","error":"Corefile, line 2: unknown directive"}`))
	want := []string{"on 10.42.0.1:53, other names are asked of 192.0.2.53",
		"still by the Corefile of 10:00:30: ConfigMap kube-system/coredns: Corefile, line 2: unknown directive"}
	if !slices.Equal(got, want) {
		t.Errorf("lines are %q, want %q", got, want)
	}
}
