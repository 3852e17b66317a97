// Package verdicts runs a class of faults many times and records how each run ended, so that a lane of many hours can be interrupted
// and continued, and shared by several machines.
//
// A run is named by class, kind and seed, and the seed decides everything that is random in it. With CORACLE_FAULT_RECORDS=DIR each
// verdict is a line of DIR/CLASS.jsonl, and runs that have one are not repeated; without it the short part that every `make test`
// has is run. CORACLE_FAULT_RUNS=N says how many runs of each kind, CORACLE_FAULT_SHARD=I/N takes every N-th of them, and
// CORACLE_FAULT_UNTIL=DURATION begins no more runs after that time.
package verdicts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// Row is the verdict of one run.
type Row struct {
	Class, Kind  string
	Seed         uint64
	OK           bool
	Acknowledged int     // writes
	Lost         int     // of these
	Seconds      float64 // from the fault's end until all was well
	Gap          float64 `json:",omitempty"` // seconds: the longest time in which no write was acknowledged that should have been
	Ready        float64 `json:",omitempty"` // seconds: 99 of 100 questions for /readyz were answered within
	Seen         string  `json:",omitempty"` // what happened, in a word, where runs of a kind may end in several good ways
	Commit, Date string
}

// Class is a kind of trouble that is made many times.
type Class struct {
	Name  string
	Kinds []string
	Short int // runs of each kind in every `make test`
	Long  int // runs of each kind in `make faults`
}

// id names a run.
type id struct {
	kind string
	seed uint64
}

// Long reports whether all runs are made, and recorded, instead of the short part.
func Long() bool { return os.Getenv("CORACLE_FAULT_RECORDS") != "" }

// Each runs what was not run before, each as a subtest. run fills in what it saw and fails the test for what must not be.
func (c Class) Each(t *testing.T, run func(t *testing.T, kind string, seed uint64, row *Row)) {
	t.Helper()
	dir := os.Getenv("CORACLE_FAULT_RECORDS")
	runs := c.Short
	if Long() {
		runs = c.Long
	}
	if n, err := strconv.Atoi(os.Getenv("CORACLE_FAULT_RUNS")); err == nil {
		runs = n
	}
	shard, shards := 0, 1
	if text := os.Getenv("CORACLE_FAULT_SHARD"); text != "" {
		if _, err := fmt.Sscanf(text, "%d/%d", &shard, &shards); err != nil || shards < 1 {
			t.Fatalf("CORACLE_FAULT_SHARD=%s: want I/N, such as 0/4", text)
		}
	}
	done, err := recorded(dir, c.Name)
	if err != nil {
		t.Fatal(err)
	}
	until, _ := time.ParseDuration(os.Getenv("CORACLE_FAULT_UNTIL"))
	began, commit := time.Now(), commit()
	for seed := uint64(1); seed <= uint64(runs); seed++ {
		for _, kind := range c.Kinds {
			if done[id{kind, seed}] || int(seed)%shards != shard%shards || until > 0 && time.Since(began) > until {
				continue
			}
			row := Row{Class: c.Name, Kind: kind, Seed: seed, Commit: commit, Date: time.Now().UTC().Format(time.DateOnly)}
			ran := false // unless -run chooses others
			row.OK = t.Run(fmt.Sprintf("%s/%d", kind, seed), func(t *testing.T) {
				defer func() { ran = !t.Skipped() }()
				run(t, kind, seed, &row)
			})
			if !ran {
				continue
			}
			if err := row.record(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (r Row) record(dir string) error {
	if dir == "" {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	file := filepath.Join(dir, r.Class+".jsonl")
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1] // without a line that was cut short
	return atomicfile.Write(file, append(append(data, line...), '\n'), 0o644)
}

// lock keeps other tests from recording at the same time.
func lock(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return func() { d.Close() }, unix.Flock(int(d.Fd()), unix.LOCK_EX)
}

// recorded are the runs of a class that have a verdict.
func recorded(dir, class string) (map[id]bool, error) {
	done := map[id]bool{}
	if dir == "" {
		return done, nil
	}
	rows, err := Read(filepath.Join(dir, class+".jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return done, nil
	}
	for _, r := range rows {
		done[id{r.Kind, r.Seed}] = true
	}
	return done, err
}

// Read reads the verdicts of a class. The last line is left out if the machine stopped in the middle of it.
func Read(file string) (rows []Row, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		var r Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// commit is what is tested: this repository's commit, with a plus sign if files differ from it.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
