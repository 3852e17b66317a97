package verdicts

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coracle-dev/coracle/test/golden"
)

// TestTable: the table in docs/reliability.md is that of the records; -update writes it.
func TestTable(t *testing.T) {
	const page, begin, end = "../../docs/reliability.md", "<!-- Written by `make faults` out of test/verdicts/records. -->\n", "<!-- End of what is written. -->\n"
	files, err := filepath.Glob("records/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all []Row
	for _, file := range files {
		rows, err := Read(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rows...)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	golden.Check(t, page, head+begin+Table(all)+end+tail)
}

// TestResume: a run that has a verdict is not repeated, a line that was cut short counts as none, and shards share the runs.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CORACLE_FAULT_RECORDS", dir)
	c := Class{Name: "class", Kinds: []string{"a", "b"}, Short: 1, Long: 3}
	ran := 0
	run := func(_ *testing.T, _ string, _ uint64, row *Row) { ran++; row.Acknowledged = 7 }
	t.Setenv("CORACLE_FAULT_SHARD", "1/3")
	c.Each(t, run)
	if ran != 2 {
		t.Errorf("a third of 6 runs were %d", ran)
	}
	t.Setenv("CORACLE_FAULT_SHARD", "")
	file := filepath.Join(dir, "class.jsonl")
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, data[:len(data)-5], 0o644) // the power goes in the middle of the last line
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Each(t, run)
	if ran != 2+5 {
		t.Errorf("%d runs were made", ran)
	}
	rows, err := Read(file)
	if err != nil || len(rows) != 6 || rows[0].Acknowledged != 7 || !rows[0].OK {
		t.Errorf("the records are %v: %v", rows, err)
	}
}

// TestTogether: tests that record verdicts of one class at the same time keep each other's.
func TestTogether(t *testing.T) {
	dir := t.TempDir()
	const many, each = 8, 20
	var group sync.WaitGroup
	for i := range uint64(many) {
		group.Go(func() {
			for n := range uint64(each) {
				if err := (Row{Class: "class", Seed: i*each + n}).record(dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if rows, err := Read(filepath.Join(dir, "class.jsonl")); err != nil || len(rows) != many*each {
		t.Errorf("%d of %d verdicts are recorded: %v", len(rows), many*each, err)
	}
}
