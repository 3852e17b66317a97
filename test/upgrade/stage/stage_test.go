package stage

import (
	"strings"
	"testing"
)

// TestProblems: requests that fail, that are answered late, or that are not made at all, are found.
func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		asked, failed int
		gap           float64
		want          string
	}{
		"good":       {20, 0, 4.9, ""},
		"one failed": {20, 1, 0.1, "1 failed"},
		"late":       {20, 0, 5.1, "had no answer for 5.10 s"},
		"not asked":  {19, 0, 0.1, "of 19 requests"},
	} {
		m := Missed{}
		for _, what := range []string{"connection", "service"} {
			count := m[what]
			count.Asked, count.Failed, count.GapSeconds = c.asked, c.failed, c.gap
			m[what] = count
		}
		if got := strings.Join(m.problems(), "; "); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
