package main

import (
	"fmt"
	"regexp"
	"slices"
)

// said is a message of a test: its first line, and the last ones if it has more.
type said struct {
	first string
	rest  []string
}

// At most so much is kept of what a test said.
const (
	keptMessages  = 8
	keptRest      = 2   // lines of a message after the first one
	keptLineBytes = 300 // bytes of a line
)

// reason returns the last message of the test, in one line.
func (t *result) reason() string {
	if len(t.said) == 0 {
		return ""
	}
	return t.said[len(t.said)-1].first
}

var (
	sourceLine = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)\n`)
	moreLine   = regexp.MustCompile(`^\s{8,}(\S.*)\n`)
	logLine    = regexp.MustCompile(`^(log of |slots: )`)
)

// hear keeps a line of the test's output if it is a part of a message. Of logs only the last one is kept.
func (t *result) hear(line string) {
	if m := sourceLine.FindStringSubmatch(line); m != nil {
		t.said = append(t.said, said{first: cut(m[1])})
		if n := len(t.said); n > 1 && logLine.MatchString(t.said[n-2].first) {
			t.said = slices.Delete(t.said, n-2, n-1)
		}
		t.said = t.said[max(0, len(t.said)-keptMessages-1):] // one more, as the last may be a log
	} else if m := moreLine.FindStringSubmatch(line); m != nil && len(t.said) > 0 {
		last := &t.said[len(t.said)-1]
		last.rest = append(last.rest, cut(m[1]))
		last.rest = last.rest[max(0, len(last.rest)-keptRest):]
	}
}

func cut(line string) string { return line[:min(len(line), keptLineBytes)] }

// explain prints what a test that failed said last, without logs, which stand above.
func (r *report) explain(t *result) {
	all := slices.DeleteFunc(slices.Clone(t.said), func(s said) bool { return logLine.MatchString(s.first) })
	all = all[max(0, len(all)-keptMessages):]
	if len(all) == 0 {
		all = []said{{}}
	}
	for _, s := range all {
		fmt.Fprintf(r.to, "failed: %s: %s\n", t.name, s.first)
		for _, line := range s.rest {
			fmt.Fprintf(r.to, "        %s\n", line)
		}
	}
}
