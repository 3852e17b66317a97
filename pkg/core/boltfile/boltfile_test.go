package boltfile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// grow makes a database, or changes one, with transactions that add, replace and delete keys in buckets of several kinds.
func grow(t *testing.T, path string, random *rand.Rand, transactions int, options *bolt.Options) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, options)
	if err != nil {
		t.Fatal(err)
	}
	for range transactions {
		err := db.Update(func(tx *bolt.Tx) error {
			top, err := tx.CreateBucketIfNotExists([]byte("top"))
			if err != nil {
				return err
			}
			for _, name := range []string{"key", "small", "deep"} {
				b, err := top.CreateBucketIfNotExists([]byte(name))
				if err != nil {
					return err
				}
				n := map[string]int{"key": 100, "small": 1, "deep": 20}[name]
				for range n {
					key := fmt.Appendf(nil, "%05d", random.IntN(3000))
					value := []byte(strings.Repeat("v", random.IntN(300)))
					if random.IntN(50) == 0 {
						value = make([]byte, 3*os.Getpagesize())
					}
					if random.IntN(3) == 0 {
						err = b.Delete(key)
					} else {
						err = b.Put(key, value)
					}
					if err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestGoodOnes: what bbolt writes is never called damaged, with and without a seal, and a seal is used once.
func TestGoodOnes(t *testing.T) {
	for _, options := range []*bolt.Options{{NoSync: true}, {NoSync: true, NoFreelistSync: true}} {
		path := filepath.Join(t.TempDir(), "db")
		seal := path + ".sum"
		for seed := range uint64(12) {
			grow(t, path, rand.New(rand.NewPCG(seed, 0)), 1+int(seed)*3%40, options)
			if sealed, err := Check(path, seal); err != nil || sealed {
				t.Fatalf("seed %d, without a seal: %v, %v", seed, sealed, err)
			}
			if err := Seal(path, seal); err != nil {
				t.Fatal(err)
			}
			if sealed, err := Check(path, seal); err != nil || !sealed {
				t.Fatalf("seed %d, with a seal: %v, %v", seed, sealed, err)
			}
			if sealed, err := Check(path, seal); err != nil || sealed {
				t.Fatalf("seed %d: the seal is still there: %v, %v", seed, sealed, err)
			}
		}
	}
}

// TestStaleSeal: a version that knows no seals has used the database.
func TestStaleSeal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	grow(t, path, rand.New(rand.NewPCG(1, 1)), 3, nil)
	if err := Seal(path, path+".sum"); err != nil {
		t.Fatal(err)
	}
	grow(t, path, rand.New(rand.NewPCG(1, 2)), 1, nil)
	if sealed, err := Check(path, path+".sum"); err != nil || sealed {
		t.Error(sealed, err)
	}
	if _, err := os.Stat(path + ".sum"); err == nil {
		t.Error("the stale seal is still there")
	}
}

// TestInUse: an open database is not sealed.
func TestInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := Seal(path, path+".sum"); err == nil {
		t.Error("it was sealed")
	}
}

// TestFlips: each bit that is changed in a sealed database is found, or lies in what is not used; without a seal what bbolt panics at is found.
func TestFlips(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	grow(t, path, rand.New(rand.NewPCG(7, 7)), 60, &bolt.Options{NoSync: true, NoFreelistSync: true})
	want := content(t, path)
	if err := Seal(path, path+".sum"); err != nil {
		t.Fatal(err)
	}
	seal, err := os.ReadFile(path + ".sum")
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random, found, structural := rand.New(rand.NewPCG(3, 3)), 0, 0
	for range 200 {
		at, bit := random.IntN(len(good)), byte(1)<<random.IntN(8)
		if random.IntN(2) == 0 { // where structure is
			at = at/4096*4096 + random.IntN(400)
		}
		good[at] ^= bit
		for _, sealed := range []bool{true, false} {
			if err := os.WriteFile(path, good, 0o600); err != nil {
				t.Fatal(err)
			}
			_ = os.Remove(path + ".sum")
			if sealed {
				if err := os.WriteFile(path+".sum", seal, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Check(path, path+".sum")
			switch {
			case err != nil && !errors.Is(err, ErrDamaged):
				t.Fatalf("byte %d, bit %x: %v", at, bit, err)
			case err != nil && sealed:
				found++
			case err != nil:
				structural++
			case sealed:
				if got := content(t, path); got != want {
					t.Fatalf("byte %d, bit %x: it has other content and was not found", at, bit)
				}
			default:
				_ = content(t, path) // does not panic
			}
		}
		good[at] ^= bit
	}
	t.Logf("%d of 200 found with a seal, %d without", found, structural)
	if found < 50 || structural < 10 {
		t.Error("too few of the bits are in use for this to say something")
	}
}

// content reads all of a database, as bbolt does.
func content(t *testing.T, path string) string {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var out strings.Builder
	var walk func(b *bolt.Bucket) error
	walk = func(b *bolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			fmt.Fprintf(&out, "%s=%s;", k, v)
			if v == nil {
				return walk(b.Bucket(k))
			}
			return nil
		})
	}
	if err := db.View(func(tx *bolt.Tx) error { return tx.ForEach(func(k []byte, b *bolt.Bucket) error { return walk(b) }) }); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestNoDatabase leaves it to bbolt to refuse what is no database.
func TestNoDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	for _, data := range []string{"", "text", strings.Repeat("\x00", 1<<20)} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if sealed, err := Check(path, path+".sum"); sealed || err != nil {
			t.Error(sealed, err)
		}
	}
	if sealed, err := Check(path+"none", path+".sum"); sealed || err != nil {
		t.Error(sealed, err)
	}
}
