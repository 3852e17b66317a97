// Package growth finds what grows while a program should use as much as before: memory, descriptors, files, and other figures that can be counted.
package growth

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Figures are what was counted at one moment, by name. A name that begins with Bytes counts bytes.
type Figures map[string]float64

// Bytes begins the names of figures that count bytes.
const Bytes = "bytes of "

// What a figure may grow: by the larger of a part of itself, and of what small figures vary anyway.
const (
	part     = 0.05
	fewBytes = 1 << 20
	few      = 2
)

// Add adds the figures of others.
func (f Figures) Add(others Figures) {
	for name, n := range others {
		f[name] += n
	}
}

// Grown returns a line for each figure that is larger than before by more than it may, in order.
func Grown(before, after Figures) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		least := float64(few)
		if strings.HasPrefix(name, Bytes) {
			least = fewBytes
		}
		if was, is := before[name], after[name]; is-was > max(part*was, least) {
			lines = append(lines, fmt.Sprintf("%s: %.0f, then %.0f", name, was, is))
		}
	}
	return lines
}

// Most returns the figure with the given beginning that has grown by the largest part, and by how many percent.
func Most(before, after Figures, beginning string) (name string, percent float64) {
	for _, n := range slices.Sorted(maps.Keys(after)) {
		if was := before[n]; strings.HasPrefix(n, beginning) && was > 0 && (name == "" || 100*(after[n]/was-1) > percent) {
			name, percent = n, 100*(after[n]/was-1)
		}
	}
	return name, percent
}

// Median is the median of each figure in the samples that have it.
func Median(samples []Figures) Figures {
	return each(samples, func(sorted []float64) float64 { return sorted[len(sorted)/2] })
}

// Least is the least of each figure: without what comes and goes.
func Least(samples []Figures) Figures {
	return each(samples, func(sorted []float64) float64 { return sorted[0] })
}

func each(samples []Figures, choose func(sorted []float64) float64) Figures {
	all := map[string][]float64{}
	for _, s := range samples {
		for name, n := range s {
			all[name] = append(all[name], n)
		}
	}
	out := Figures{}
	for name, values := range all {
		slices.Sort(values)
		out[name] = choose(values)
	}
	return out
}

// String lists the figures, one a line.
func (f Figures) String() string {
	out := &strings.Builder{}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(out, "%s: %.0f\n", name, f[name])
	}
	return out.String()
}
