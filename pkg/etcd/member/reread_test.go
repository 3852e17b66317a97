package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	berrors "go.etcd.io/bbolt/errors"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// TestRebuild damages the database of a member that has its whole log: it makes the database again. Once it has deleted a part of
// its log it must not.
func TestRebuild(t *testing.T) {
	e := newEtcd(t)
	err, stop := run(t, e)
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, e)
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	stop()
	db := filepath.Join(e.Dir, "member", "snap", "db")
	damage := func() {
		t.Helper()
		if err := os.WriteFile(db, make([]byte, 16<<10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damage()
	err, stop = run(t, e)
	if err != nil {
		t.Fatalf("with the whole log: %v", err)
	}
	c = client(t, e)
	got, err := c.Get(t.Context(), "key")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
		t.Errorf("the database that was made again has %v: %v", got, err)
	}
	c.Close()
	stop()
	if aside, _ := filepath.Glob(db + ".damaged-*"); len(aside) != 1 {
		t.Errorf("the damaged database was not kept: %v", aside)
	}

	damage()
	wal := filepath.Join(e.Dir, "member", "wal")
	if err := os.Rename(filepath.Join(wal, "0000000000000000-0000000000000000.wal"), filepath.Join(wal, "0000000000000001-0000000000000001.wal")); err != nil {
		t.Fatal(err)
	}
	if moved, err := e.rebuild(context.Canceled); moved || err != nil {
		t.Errorf("it was moved because of another error: %v", err)
	}
	if err, _ = run(t, e); err == nil {
		t.Fatal("it began with an empty database, although a part of its log was deleted")
	}
	if info, err := os.Stat(db); err != nil || info.Size() != 16<<10 {
		t.Errorf("the damaged database is gone: %v", err)
	}
}

// TestNoStartWithoutReread: a member whose files cannot be read from the disk again does not start at the next try either.
func TestNoStartWithoutReread(t *testing.T) {
	e := newEtcd(t)
	mustRun(t, e)()
	bad := filepath.Join(e.Dir, "member", "snap", "bad")
	if err := os.Symlink("/nowhere/at/all", bad); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		err, stop := run(t, e)
		if err == nil {
			stop()
			t.Fatalf("start %d trusts what the kernel has of the files", n)
		}
		if !strings.Contains(err.Error(), bad) {
			t.Errorf("start %d: %v", n, err)
		}
	}
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	mustRun(t, e)()
}

// TestNotRebuilt: what the log does not have, or no longer, cannot be made again from it.
func TestNotRebuilt(t *testing.T) {
	const first = "wal/0000000000000000-0000000000000000.wal"
	for name, c := range map[string]struct {
		files   []string
		cause   error
		rebuilt bool
	}{
		"the whole log":   {[]string{first}, berrors.ErrInvalid, true},
		"a later log":     {[]string{"wal/0000000000000001-0000000000010000.wal"}, berrors.ErrInvalid, false},
		"a snapshot":      {[]string{first, "snap/0000000000000002-0000000000010000.snap"}, berrors.ErrInvalid, false},
		"another problem": {[]string{first}, berrors.ErrTimeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := &Etcd{Dir: t.TempDir()}
			for _, file := range append(c.files, "snap/db") {
				path := filepath.Join(e.Dir, "member", file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			moved, err := e.rebuild(c.cause)
			_, left := os.Stat(filepath.Join(e.Dir, "member", "snap", "db"))
			if err != nil || moved != c.rebuilt || os.IsNotExist(left) != c.rebuilt {
				t.Errorf("moved: %v, %v; the database: %v", moved, err, left)
			}
		})
	}
}

// TestNeverWritten: a power cut while the first database is being made leaves one without content, and nothing else.
func TestNeverWritten(t *testing.T) {
	e := newEtcd(t)
	dir := filepath.Join(e.Dir, "member", "snap")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "db"), make([]byte, 16<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	err, stop := run(t, e)
	if err != nil {
		t.Fatal(err)
	}
	stop()
}

// TestUnfinished: a power cut in the first start leaves a log without the entry that makes this server a member.
func TestUnfinished(t *testing.T) {
	e := newEtcd(t)
	dir := filepath.Join(e.Dir, "member", "wal")
	data, err := proto.Marshal(&pb.Metadata{NodeID: proto.Uint64(1), ClusterID: proto.Uint64(2)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(e.Dir, "member", "snap"), 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := etcdwal.Create(zap.NewNop(), dir, data)
	if err == nil {
		err = log.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	err, stop := run(t, e)
	if err != nil {
		t.Fatal(err)
	}
	stop()
}

// TestFailingDiskIsNamed: nobody is told to move data away because a disk fails.
func TestFailingDiskIsNamed(t *testing.T) {
	e := &Etcd{Dir: "/data"}
	for _, cause := range []error{syscall.EIO, syscall.EROFS} {
		got := e.explain(fmt.Errorf("writing: %w", &os.PathError{Op: "open", Path: "/data/x", Err: cause})).Error()
		if !strings.Contains(got, "the disk of /data fails") || strings.Contains(got, "move it away") {
			t.Errorf("%v is explained as: %s", cause, got)
		}
	}
	for _, full := range []error{&os.PathError{Op: "open", Path: "/data/x", Err: syscall.ENOSPC}, errors.New("failed to commit tx: write /data/db: no space left on device")} {
		if got := e.explain(full).Error(); !strings.Contains(got, "the disk of /data is full") || strings.Contains(got, "move it away") {
			t.Errorf("a full disk is explained as: %s", got)
		}
	}
}
