package export

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// database makes one with the buckets' entries.
func database(t *testing.T, entries map[string]map[string]string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bolt.Tx) error {
		for name, all := range entries {
			b, err := tx.CreateBucket([]byte(name))
			if err != nil {
				return err
			}
			for k, v := range all {
				if err := b.Put([]byte(k), []byte(v)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func export(t *testing.T, file string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, file); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestThereAndBack: the database of a stream has the same stream, also if it needs several transactions.
func TestThereAndBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	keys := map[string]string{"empty": ""}
	for i := range 3000 {
		value := make([]byte, random.IntN(14_000))
		for j := range value {
			value[j] = byte(random.Uint32())
		}
		keys[fmt.Sprintf("key%07d", i)] = string(value)
	}
	first := export(t, database(t, map[string]map[string]string{"key": keys, "meta": {"term": "\x00\x01"}, "lease": {}}))
	if len(first) < 2*step {
		t.Fatalf("%d bytes are no test of several transactions", len(first))
	}
	again := filepath.Join(t.TempDir(), "again")
	if err := Read(bytes.NewReader(first), again); err != nil {
		t.Fatal(err)
	}
	if second := export(t, again); !bytes.Equal(first, second) {
		t.Error("the stream of the new database differs")
	}
	stream := filepath.Join(t.TempDir(), "stream")
	if err := os.WriteFile(stream, first, 0o600); err != nil {
		t.Fatal(err)
	}
	if yes, err := Is(stream); !yes || err != nil {
		t.Errorf("is the stream one? %v, %v", yes, err)
	}
	if yes, err := Is(again); yes || err != nil {
		t.Errorf("is a database one? %v, %v", yes, err)
	}
}

// TestBad: what is cut off, or is something else, makes no database, and says why.
func TestBad(t *testing.T) {
	whole := export(t, database(t, map[string]map[string]string{"key": {"a": "1", "b": "2"}, "meta": {"term": "3"}}))
	bad := map[string]string{"something else": "these are not the entries", magic: "end in the middle", magic + "\x02\x01a\x01b": "begin without a bucket",
		magic + "\x07": "of kind 7", magic + "\x01\xff\xff\xff\xff\x7f": "have one of"}
	for n := range len(whole) - 1 {
		bad[string(whole[:n])] = "" // any error
	}
	for stream, want := range bad {
		file := filepath.Join(t.TempDir(), "db")
		if err := Read(strings.NewReader(stream), file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v", stream, err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%.40q: it left a database", stream)
		}
	}
	if err := Write(&bytes.Buffer{}, "/dev/null"); err == nil {
		t.Error("an empty file has entries")
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
