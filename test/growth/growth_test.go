package growth

import (
	"slices"
	"testing"
)

func TestGrown(t *testing.T) {
	before := Figures{"mounts": 100, "leases": 3, Bytes + "memory": 100 << 20, Bytes + "small": 1 << 20}
	for _, c := range []struct {
		name  string
		after Figures
		want  []string
	}{
		{"nothing", before, nil},
		{"less than it may", Figures{"mounts": 105, "leases": 5, Bytes + "memory": 104 << 20, Bytes + "small": 3 << 19}, nil},
		{"less than before", Figures{"mounts": 1}, nil},
		{"a twentieth and one", Figures{"mounts": 106}, []string{"mounts: 100, then 106"}},
		{"three where two may come", Figures{"leases": 6}, []string{"leases: 3, then 6"}},
		{"bytes, and what was not there", Figures{Bytes + "memory": 106 << 20, "new": 3},
			[]string{"bytes of memory: 104857600, then 111149056", "new: 0, then 3"}},
	} {
		if got := Grown(before, c.after); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSamples(t *testing.T) {
	samples := []Figures{{"a": 3, "b": 1}, {"a": 1}, {"a": 2}}
	if m := Median(samples); m["a"] != 2 || m["b"] != 1 {
		t.Errorf("the medians are %v", m)
	}
	if l := Least(samples); l["a"] != 1 || l["b"] != 1 {
		t.Errorf("the least are %v", l)
	}
	if name, percent := Most(Figures{"x": 10, "xx": 10, "y": 1}, Figures{"x": 11, "xx": 12, "y": 9}, "x"); name != "xx" || int(percent+0.5) != 20 {
		t.Errorf("%s has grown most, by %f %%", name, percent)
	}
}
