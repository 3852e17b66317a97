package durability

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// TestBitRot changes one bit of a file of a member that is not running, and starts it: either all is there, or it says which directory is
// damaged. "crashed" is its database after it was killed, when it has no checksum of the whole, and only the structure and the keys and values
// are compared. docs/reliability.md says what that means.
func TestBitRot(t *testing.T) {
	slots.Take(t)
	good := newMachine(t)
	defer good.remove()
	good.boot()
	w := good.write("rot")
	if err := w.await(2500, patience); err != nil { // after 2000 etcd writes a snapshot
		t.Fatal(err)
	}
	w.end()
	if noted := good.noted(); noted < len(w.acknowledged) { // a note that was taken while it still wrote says nothing of the rest
		good.stop()
		if err := os.Remove(good.note()); err != nil {
			t.Fatal(err)
		}
		good.boot()
		if err := good.await(patience); err != nil {
			t.Fatal(err)
		}
		if noted := good.noted(); noted < len(w.acknowledged) {
			t.Fatalf("the note after another start is of revision %d", noted)
		}
	}
	good.kill()
	crashed := newMachine(t)
	defer crashed.remove()
	crashed.copy(good)
	good.boot()
	if err := good.await(patience); err != nil {
		t.Fatal(err)
	}
	good.stop()
	c := verdicts.Class{Name: "etcd-bit-rot", Kinds: []string{"log", "database", "crashed", "snapshot"}, Short: 2, Long: 200}
	c.Each(t, func(t *testing.T, kind string, seed uint64, row *verdicts.Row) {
		m := newMachine(t)
		t.Cleanup(m.remove)
		m.copy(map[bool]*machine{true: crashed, false: good}[kind == "crashed"])
		random := rand.New(rand.NewPCG(seed, uint64(len(kind))))
		m.flip(map[string]string{"log": "wal/*.wal", "database": "snap/db", "crashed": "snap/db", "snapshot": "snap/*.snap"}[kind], random)
		m.boot()
		ended := time.Now()
		for !m.ready() && m.started() < 3 && time.Since(ended) < patience { // it may be started again once
			<-time.After(10 * time.Millisecond)
		}
		row.Seconds, row.Acknowledged = time.Since(ended).Seconds(), len(w.acknowledged)
		defer func() {
			m.kill()
			if text := m.log.String(); strings.Contains(text, "goroutine ") {
				t.Error("it ends with a stack trace")
			}
		}()
		if !m.ready() {
			m.kill()
			row.Seen, row.Acknowledged = "refused and named", 0
			if !strings.Contains(m.log.String(), "if the data in "+filepath.Join(m.dir, "db")+" is damaged") {
				t.Error("it does not start, and does not say that its data may be damaged")
			}
			return
		}
		row.Seen = "harmless"
		for _, when := range []string{"", " after more writes and another start"} {
			if when != "" {
				more := m.write("more")
				if err := more.await(50, patience); err != nil {
					t.Error(err)
				}
				more.end()
				m.stop()
				m.boot()
				if err := m.await(patience); err != nil {
					t.Fatalf("%v%s", err, when)
				}
			}
			lost := w.lost(t, m)
			if row.Lost = max(row.Lost, len(lost)); len(lost) > 0 {
				t.Errorf("%d of %d writes are missing or wrong%s, such as %s", len(lost), len(w.acknowledged), when, lost[0])
			}
		}
	})
}

func (m *machine) note() string { return filepath.Join(m.dir, "db", "member", "keys.sum") }

// noted waits for the note of what the keys and values are, and returns the revision that it is of.
func (m *machine) noted() (revision int) {
	m.t.Helper()
	hosts.Eventually(m.t, patience, func() error { _, err := os.Stat(m.note()); return err })
	text, err := os.ReadFile(m.note())
	if err == nil {
		_, err = fmt.Sscan(string(text), &revision)
	}
	if err != nil {
		m.t.Fatalf("reading %s: %v", m.note(), err)
	}
	return revision
}

// copy takes over the data of a machine that is not running.
func (m *machine) copy(from *machine) {
	m.t.Helper()
	if out, err := exec.Command("cp", "-a", "--sparse=always", from.dir+"/.", m.dir).CombinedOutput(); err != nil {
		m.t.Fatalf("copying: %v: %s", err, out)
	}
}

// flip changes one bit of one of the files that match, at a place that has content.
func (m *machine) flip(pattern string, random *rand.Rand) {
	m.t.Helper()
	files, err := filepath.Glob(filepath.Join(m.dir, "db", "member", pattern))
	if err != nil || len(files) == 0 {
		m.t.Fatalf("no file is %s: %v", pattern, err)
	}
	name := files[random.IntN(len(files))]
	data, err := os.ReadFile(name)
	if err != nil {
		m.t.Fatal(err)
	}
	end := len(data)
	for end > 0 && data[end-1] == 0 { // behind it etcd has reserved room
		end--
	}
	at := random.IntN(end)
	data[at] ^= 1 << random.IntN(8)
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(data[at:at+1], int64(at))
	}
	if err != nil {
		m.t.Fatal(err)
	}
	_ = f.Close()
	m.t.Logf("flipped a bit of byte %d of %s, of %d with content", at, filepath.Base(name), end)
}
