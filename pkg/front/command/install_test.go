package command

import (
	"slices"
	"testing"
)

func TestMerged(t *testing.T) {
	got := merged([]string{"CORACLE_TOKEN=a", "CORACLE_DEBUG=true", "https_proxy=old"}, []string{"https_proxy=new", "no_proxy=x"})
	if want := []string{"CORACLE_TOKEN=a", "CORACLE_DEBUG=true", "https_proxy=new", "no_proxy=x"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
