// Package rot changes single bits of files and has the functions that read them judge: what is not the same must be named.
package rot

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	bolt "go.etcd.io/bbolt"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/boltfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// kinds make a file in a directory, and return its name and what reads it: its content as a program sees it.
var kinds = map[string]func(t *testing.T, dir string) (file string, read func() (any, error)){
	"backup": func(t *testing.T, dir string) (string, func() (any, error)) {
		d, began := paths.Dirs{Data: filepath.Join(dir, "data"), Config: filepath.Join(dir, "etc")}, time.Now()
		write(t, filepath.Join(d.PKI(), "ca.key"), strings.Repeat("secret", 100))
		write(t, d.ServerCluster(), "settings")
		files, err := backup.Gather(d, func(w io.Writer) error {
			_, err := io.CopyN(w, rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%32d", began.UnixNano())))), 150<<10) // three pieces of age
			return err
		}, nil)
		must(t, err)
		file := filepath.Join(dir, "backup")
		identity, err := age.GenerateX25519Identity()
		must(t, err)
		keys := backup.Keys{Recipients: []string{identity.Recipient().String()}}
		keys, err = backup.Write(file, keys, backup.Manifest{Version: "v1", Node: "one", Revision: 7}, files)
		must(t, err)
		return file, func() (any, error) { m, err := backup.Verify(file, keys); return m, err }
	},
	"settings": func(t *testing.T, dir string) (string, func() (any, error)) {
		file := filepath.Join(dir, "cluster.json")
		must(t, join.Memory{Cluster: join.Cluster{Settings: config.ClusterSettings{"cluster-cidr": "10.42.0.0/16", "service-cidr": "10.43.0.0/16"}}}.Save(file))
		return file, func() (any, error) { m, err := join.LoadMemory(file); return m, err }
	},
	"ledger": func(t *testing.T, dir string) (string, func() (any, error)) {
		d := paths.Dirs{Data: dir}
		must(t, ledger.Open(d).Note(ledger.Entry{Kind: ledger.Dir, Name: "/etc/coracle"}, ledger.Entry{Kind: ledger.Dir, Name: "/run/coracle"}))
		return d.Ledger(), func() (any, error) { e, err := ledger.Open(d).Entries(); return e, err }
	},
	"containerd": func(t *testing.T, dir string) (string, func() (any, error)) {
		file := filepath.Join(dir, "meta.db")
		db, err := bolt.Open(file, 0o600, &bolt.Options{NoFreelistSync: true})
		must(t, err)
		must(t, db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucket([]byte("v1"))
			for i := range 200 {
				if err == nil {
					err = b.Put([]byte{byte(i)}, []byte(strings.Repeat("digest", i%40)))
				}
			}
			return err
		}))
		must(t, db.Close())
		return file, func() (any, error) {
			if !paths.Exists(boltfile.SealOf(file)) {
				must(t, boltfile.Seal(file, boltfile.SealOf(file)))
			}
			if _, err := boltfile.Check(file, boltfile.SealOf(file)); err != nil {
				return nil, err
			}
			must(t, boltfile.Seal(file, boltfile.SealOf(file)))
			return pairs(t, file), nil
		}
	},
}

// TestBitRot: after one bit has changed the content is the same, or the error names the file.
func TestBitRot(t *testing.T) {
	c := verdicts.Class{Name: "file-bit-rot", Kinds: []string{"backup", "containerd", "ledger", "settings"}, Short: 5, Long: 1000}
	c.Each(t, func(t *testing.T, kind string, seed uint64, row *verdicts.Row) {
		file, read := kinds[kind](t, t.TempDir())
		want, err := read()
		must(t, err)
		data, err := os.ReadFile(file)
		must(t, err)
		random := rand.New(rand.NewPCG(seed, uint64(len(kind))))
		at := random.IntN(len(data))
		data[at] ^= 1 << random.IntN(8)
		must(t, os.WriteFile(file, data, 0o600))
		got, err := read()
		switch {
		case err == nil && reflect.DeepEqual(got, want):
			row.Seen = "harmless"
		case err == nil:
			t.Errorf("a bit of byte %d of %d: it reads %v, not %v", at, len(data), got, want)
		case !strings.Contains(err.Error(), filepath.Base(file)):
			t.Errorf("a bit of byte %d of %d: the error does not name the file: %v", at, len(data), err)
		default:
			row.Seen = "refused and named"
		}
	})
}

func pairs(t *testing.T, file string) map[string]string {
	t.Helper()
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true})
	must(t, err)
	defer db.Close()
	all := map[string]string{}
	must(t, db.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("v1")).ForEach(func(k, v []byte) error { all[string(k)] = string(v); return nil })
	}))
	return all
}

func write(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte(text), 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
