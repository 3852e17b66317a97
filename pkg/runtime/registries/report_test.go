package registries

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestReport(t *testing.T) {
	r := Report()
	if got := r.Lines(json.RawMessage(`{"file":"/etc/coracle/registries.yaml"}`)); got != nil {
		t.Errorf("of a file that was corrected the lines are %q", got)
	}
	got := r.Lines(json.RawMessage(`{"file":"/etc/coracle/registries.yaml","error":"line 3: unknown key mirror"}`))
	if !slices.Equal(got, []string{"still by the previous content of /etc/coracle/registries.yaml: line 3: unknown key mirror"}) {
		t.Errorf("lines are %q", got)
	}
}
