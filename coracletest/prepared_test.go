package coracletest

import (
	"slices"
	"testing"
)

// TestPreparedOptions: what is asked of a cluster from a prepared one holds where that is made anew, too.
func TestPreparedOptions(t *testing.T) {
	p := &Prepared{options: Options{Nodes: 2, Config: "c.yaml", Images: []string{"a.tar"}, Executable: "coracle"}}
	got := p.with(Options{From: p, Rollout: true, Images: []string{"b.tar"}, Config: "d.yaml"})
	if got.Nodes != 2 || !got.Rollout || got.Config != "d.yaml" || got.Executable != "coracle" || got.From != nil || !slices.Equal(got.Images, []string{"a.tar", "b.tar"}) {
		t.Errorf("the options are %+v", got)
	}
}
