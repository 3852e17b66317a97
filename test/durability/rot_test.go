package durability

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// TestBitRot changes one bit of the log of a stopped member, and starts it: either all is there, or it says which directory is damaged.
// The pages of etcd's database have no checksums: docs/reliability.md says what that means.
func TestBitRot(t *testing.T) {
	slots.Take(t)
	good := newMachine(t)
	defer good.remove()
	good.boot()
	w := good.write("rot")
	if err := w.await(300, patience); err != nil {
		t.Fatal(err)
	}
	w.end()
	good.stop()
	c := verdicts.Class{Name: "etcd-bit-rot", Kinds: []string{"log"}, Short: 3, Long: 200}
	c.Each(t, func(t *testing.T, kind string, seed uint64, row *verdicts.Row) {
		m := newMachine(t)
		t.Cleanup(m.remove)
		if out, err := exec.Command("cp", "-a", "--sparse=always", good.dir+"/.", m.dir).CombinedOutput(); err != nil {
			t.Fatalf("copying: %v: %s", err, out)
		}
		random := rand.New(rand.NewPCG(seed, uint64(len(kind))))
		m.flip("wal/*.wal", random)
		m.boot()
		ended := time.Now()
		err := m.await(time.Millisecond)
		for err != nil && m.started() < 3 && time.Since(ended) < patience { // it may be started again once
			err = m.await(time.Millisecond)
		}
		row.Seconds, row.Acknowledged = time.Since(ended).Seconds(), len(w.acknowledged)
		if err != nil {
			m.kill()
			row.Seen, row.Acknowledged = "refused and named", 0
			if !strings.Contains(m.log.String(), "if the data in "+filepath.Join(m.dir, "db")+" is damaged") {
				t.Error("it does not start, and does not say that its data may be damaged")
			}
			return
		}
		row.Seen = "harmless"
		lost := w.lost(t, m)
		if row.Lost = len(lost); row.Lost > 0 {
			t.Errorf("%d of %d writes are missing or wrong, such as %s", len(lost), len(w.acknowledged), lost[0])
		}
	})
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
