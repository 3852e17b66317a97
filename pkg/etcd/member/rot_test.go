package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// flip changes a bit in the middle of each place of a file that has the text.
func flip(t *testing.T, file, text string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at, found := 0, false; ; found = true {
		next := bytes.Index(data[at:], []byte(text))
		if next < 0 {
			if !found {
				t.Fatalf("%s does not have %q", file, text)
			}
			return
		}
		at += next + len(text)/2
		if _, err := f.WriteAt([]byte{data[at] ^ 4}, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
}

func running(e *Etcd) life { return life{Etcd: e, server: e.running} }

// TestChangedValue: one bit of a value changes on the disk, while the member runs, after it was stopped, and after a crash.
func TestChangedValue(t *testing.T) {
	for _, when := range []string{"running", "stopped", "crashed"} {
		t.Run(when, func(t *testing.T) {
			e := newEtcd(t)
			stop := mustRun(t, e)
			put(t, e, "a", "the value of a")
			put(t, e, "b", "another")
			if err := running(e).checkNote(t.Context()); err != nil {
				t.Fatal(err)
			}
			if when == "running" {
				flip(t, e.database(), "the value of a")
				if err := running(e).checkNote(t.Context()); !errors.Is(err, errChanged) {
					t.Errorf("the note after the change: %v", err)
				}
			}
			stop()
			if when != "stopped" {
				remove(t, e.seal())
			}
			if when != "running" {
				flip(t, e.database(), "the value of a")
			}
			for range 2 { // it is not forgotten
				data := filepath.Join(t.TempDir(), "copy") // what is found after the start leaves etcd as it is, for the end of the process
				if err := errors.Join(os.CopyFS(data, os.DirFS(e.Dir)), os.Chmod(data, 0o700)); err != nil {
					t.Fatal(err)
				}
				err, stop := run(t, e)
				if err == nil {
					stop()
					t.Fatal("it starts with a changed value")
				}
				if !strings.Contains(err.Error(), "has changed it") || !strings.Contains(err.Error(), "the data in "+e.Dir+" is damaged") {
					t.Errorf("it does not say what is wrong and where: %v", err)
				}
				e.Dir, e.Socket = data, e.Socket+"-"
			}
			remove(t, map[bool]string{true: e.seal(), false: e.note()}[when == "stopped"]) // as the message says
			if when == "stopped" {
				remove(t, e.note())
			}
			mustRun(t, e)()
		})
	}
}

// TestChangedLog: a log of which the disk has changed the end stays refused, although each start makes it longer.
func TestChangedLog(t *testing.T) {
	e := newEtcd(t)
	stop := mustRun(t, e)
	for i := range 100 {
		put(t, e, fmt.Sprint("key", i), "value")
	}
	stop()
	changeLength(t, wal(t, e.Dir), 196, func(length int64) int64 { return length | 1<<48 })
	for start := range 6 {
		data := filepath.Join(t.TempDir(), "copy") // what is found after the start leaves etcd as it is, for the end of the process
		err, stop := run(t, e)
		if err == nil {
			stop()
			t.Fatalf("start %d: it starts with a changed log", start)
		}
		if !strings.Contains(err.Error(), "the disk has changed the log; it is used nevertheless without the file "+e.logChanged()) {
			t.Errorf("it does not say what is wrong and where: %v", err)
		}
		if err := errors.Join(os.CopyFS(data, os.DirFS(e.Dir)), os.Chmod(data, 0o700)); err != nil {
			t.Fatal(err)
		}
		e.Dir, e.Socket = data, e.Socket+"-"
	}
}

// TestDefragmentDuringCopy: a defragmentation would wait for the copy, and have all reads and writes wait.
func TestDefragmentDuringCopy(t *testing.T) {
	e := newEtcd(t)
	defer mustRun(t, e)()
	c := client(t, e)
	defer c.Close()
	e.copying.RLock()
	if _, err := c.Defragment(t.Context(), c.Endpoints()[0]); err == nil || !strings.Contains(err.Error(), "a backup copies the database") {
		t.Errorf("during a copy: %v", err)
	}
	e.copying.RUnlock()
	if _, err := c.Defragment(t.Context(), c.Endpoints()[0]); err != nil {
		t.Errorf("after a copy: %v", err)
	}
}

// TestNoteAfterReads: a note has all keys also if there was no write between etcd's last read and the note, so that etcd still has a copy of its
// buffer of writes, and if there are more keys than are read at a time.
func TestNoteAfterReads(t *testing.T) {
	e := newEtcd(t)
	defer mustRun(t, e)()
	c := client(t, e)
	defer c.Close()
	for _, many := range []int{page * 3 / 2, 10, page / 2} {
		for n := range many {
			if _, err := c.Put(t.Context(), fmt.Sprint("key", n), "value"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Get(t.Context(), "key1"); err != nil {
			t.Fatal(err)
		}
		now, then, err := running(e).digests(t.Context(), running(e).server.Server.KV().Rev())
		if err != nil || then == nil || *then != now || now.keys != page*3/2 {
			t.Errorf("after %d writes there are %d keys of %d: %v", many, now.keys, page*3/2, err)
		}
		if err := running(e).checkNote(t.Context()); err != nil {
			t.Errorf("after %d writes: %v", many, err)
		}
	}
}

// TestNoFalseAlarm does what changes the database or the log, and wants that no note is ever found wrong, while clients write.
func TestNoFalseAlarm(t *testing.T) {
	e := newEtcd(t)
	random, taken := rand.New(rand.NewPCG(1, 2)), 0
	for start := range 6 {
		stop := mustRun(t, e)
		c := client(t, e)
		ctx, end := context.WithCancel(t.Context())
		written := make(chan int64)
		go func() {
			defer close(written)
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprint("key", n%700)
				ops := []clientv3.Op{clientv3.OpPut(key, strings.Repeat("x", n%300)), clientv3.OpPut("also"+key, "y")}
				if n%5 == 0 {
					ops = []clientv3.Op{clientv3.OpDelete(key), clientv3.OpDelete("also", clientv3.WithPrefix())}
				}
				if got, err := c.Txn(ctx).Then(ops...).Commit(); err == nil {
					select {
					case written <- got.Header.Revision:
					default:
					}
				}
			}
		}()
		for n := range 25 {
			err := running(e).checkNote(t.Context())
			if err != nil && !errors.Is(err, errAgain) {
				t.Fatalf("start %d, note %d: %v", start, n, err)
			}
			if err == nil {
				taken++
			}
			revision := <-written
			switch random.IntN(6) {
			case 0:
				_, _ = c.Compact(ctx, revision-int64(random.IntN(60)))
			case 1:
				_, _ = c.Compact(ctx, revision)
			case 2:
				_, _ = c.Defragment(ctx, "unix://"+e.Socket)
			}
		}
		end()
		for range written {
		}
		_ = c.Close()
		stop()
		if start%2 == 0 {
			remove(t, e.seal())
		}
	}
	if taken < 100 {
		t.Errorf("only %d of 150 notes were taken", taken)
	}
}

// TestNotesSaySomething: a note is compared for as long as its revision is not compacted, and after it is.
func TestNotesSaySomething(t *testing.T) {
	e := newEtcd(t)
	defer mustRun(t, e)()
	c := client(t, e)
	defer c.Close()
	put(t, e, "a", "1")
	put(t, e, "b", "1")
	if _, err := c.Delete(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	before, _, err := running(e).digests(t.Context(), 0)
	if err != nil || before.keys != 1 {
		t.Fatal(before, err)
	}
	put(t, e, "a", "2")
	put(t, e, "c", "1")
	for _, compacted := range []int64{before.revision - 1, before.revision} {
		if _, err := c.Compact(t.Context(), compacted, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
		now, then, err := running(e).digests(t.Context(), before.revision)
		if err != nil || then == nil || *then != before || now.keys != 2 || now.sum == before.sum {
			t.Errorf("compacted at %d: %v, %v, %v; was %v", compacted, now, then, err, before)
		}
	}
	if _, err := c.Compact(t.Context(), before.revision+1); err != nil {
		t.Fatal(err)
	}
	if _, then, err := running(e).digests(t.Context(), before.revision); err != nil || then != nil {
		t.Errorf("after its revision is compacted: %v, %v", then, err)
	}
}

// TestLostTail: after a crash the member lacks writes that the note knows, and their revisions are used again.
func TestLostTail(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		e := newEtcd(t)
		stop := mustRun(t, e)
		put(t, e, "a", "1")
		stop()
		former := filepath.Join(t.TempDir(), "former")
		if err := os.CopyFS(former, os.DirFS(e.Dir)); err != nil {
			t.Fatal(err)
		}
		stop = mustRun(t, e)
		put(t, e, "b", "lost")
		put(t, e, "c", "lost")
		if err := running(e).checkNote(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop()
		_, note, err := e.readNote()
		if err != nil || note == "" {
			t.Fatal("there is no note", err)
		}
		e.Dir = former
		if err := os.Chmod(former, 0o700); err != nil {
			t.Fatal(err)
		}
		if !sealed {
			remove(t, e.seal())
		}
		if err := atomicfile.WriteSummed(e.note(), note, 0o600); err != nil {
			t.Fatal(err)
		}
		stop = mustRun(t, e)
		for n := range 5 {
			put(t, e, "d", fmt.Sprint(n))
		}
		if err := running(e).checkNote(t.Context()); err != nil {
			t.Error(err)
		}
		stop()
		mustRun(t, e)()
	}
}

// TestRestoredNotes: a backup that is put in place has neither the notes nor the revisions of the former data.
func TestRestoredNotes(t *testing.T) {
	e := newEtcd(t)
	stop := mustRun(t, e)
	put(t, e, "a", "1")
	file := filepath.Join(t.TempDir(), "backup")
	if _, err := Save(t.Context(), e.Socket, file, nil); err != nil {
		t.Fatal(err)
	}
	put(t, e, "a", "2")
	if err := running(e).checkNote(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	e.Dir += "-restored"
	if err := Restore(file, e.Dir, e.Name); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		stop := mustRun(t, e)
		want(t, e, "a", "1")
		for range 2 {
			if err := running(e).checkNote(t.Context()); err != nil {
				t.Error(err)
			}
			put(t, e, "b", "1")
		}
		stop()
		remove(t, e.seal())
	}
}

// TestCaughtUpNotes: a member that gets the whole database from the others has a note of its former one.
func TestCaughtUpNotes(t *testing.T) {
	members, stop := cluster(t, 3)
	put(t, members[0], "a", "1")
	want(t, members[2], "a", "1") // it has it now
	if err := running(members[2]).checkNote(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop[2]()
	remove(t, members[2].seal())
	fill(t, members[0], 6000) // more than the log keeps
	again := mustRun(t, members[2])
	for _, e := range members {
		for range 2 {
			err := running(e).checkNote(t.Context())
			for tries := 0; errors.Is(err, errAgain) && tries < 500; tries++ { // while the database is being replaced
				<-time.After(10 * time.Millisecond)
				err = running(e).checkNote(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			put(t, members[0], "a", "2")
		}
	}
	again()
	stop[1]()
	stop[0]()
}
