package nshost

import "testing"

// TestOptionalMount: a host starts without an optional mount whose source is gone.
func TestOptionalMount(t *testing.T) {
	here := t.TempDir()
	has := map[string]bool{}
	for _, m := range mounts(spec{Mounts: []Mount{
		{Source: here, Target: "/there", ReadOnly: true, Optional: true}, {Source: here + "/none", Target: "/gone", ReadOnly: true, Optional: true},
		{Source: here + "/none", Target: "/needed"},
	}}) {
		has[m.target] = true
	}
	if !has["there"] || has["gone"] || !has["needed"] {
		t.Errorf("mounted are %v", has)
	}
}
