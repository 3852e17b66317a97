package state

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestReportOfAnotherVersion: what cannot be read to its end counts as missing, and not as what was read of it.
func TestReportOfAnotherVersion(t *testing.T) {
	type form struct {
		Count int
		Names []string
	}
	r := NewReport("example", EachNode, "Example", func(f form) []string { return []string{fmt.Sprint(f.Count)} },
		func(f form) ([]Problem, string) { return nil, fmt.Sprint(f.Count) })
	for text, want := range map[string]struct {
		lines int
		fine  string
	}{
		`{"Count":3,"Names":["a"]}`: {1, "3"},
		`{"Count":3,"Names":7}`:     {0, "0"},
		``:                          {0, "0"},
	} {
		var raw json.RawMessage
		if text != "" {
			raw = json.RawMessage(text)
		}
		lines := r.Lines(raw)
		if _, fine := r.Judge(raw); fine != want.fine || len(lines) != want.lines {
			t.Errorf("%s: %q, %q", text, fine, lines)
		}
	}
	if NewReport("example", EachNode, "Example", func(form) []string { return nil }, nil).Judge != nil {
		t.Error("a report without a probe has one")
	}
}
