package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/etcd/members"
)

// servers stands for the other servers' APIs: it asks the members that run.
type servers struct{ asked []*Etcd }

func (s *servers) Known() bool { return true }

// any calls do with the members as the first server that answers sees them.
func (s *servers) any(ctx context.Context, do func(context.Context, *Etcd, *members.Members) error) error {
	err := errors.New("there is no server")
	for _, e := range s.asked {
		try, cancel := context.WithTimeout(ctx, 20*time.Second)
		err = do(try, e, as(e))
		cancel()
		if err == nil {
			return nil
		}
	}
	return err
}

// as is the membership as e sees it.
func as(e *Etcd) *members.Members {
	return &members.Members{Socket: e.Socket, CA: e.TLS.CA, Cert: e.TLS.Cert, Key: e.TLS.Key}
}

func (s *servers) Members(ctx context.Context) (all []join.Member, err error) {
	err = s.any(ctx, func(ctx context.Context, _ *Etcd, m *members.Members) (err error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		all, err = m.List(ctx)
		return err
	})
	return all, err
}

func (s *servers) AddMember(ctx context.Context, member join.AddMember) (added join.AddedMember, err error) {
	err = s.any(ctx, func(ctx context.Context, e *Etcd, m *members.Members) (err error) {
		if err = e.OpenPeers(ctx); err == nil {
			added, err = m.Add(ctx, member)
		}
		return err
	})
	return added, err
}

// member makes the nth member, on its own loopback address.
func member(t *testing.T, n int, others Others) *Etcd {
	t.Helper()
	e := newEtcd(t)
	e.Name, e.Others = fmt.Sprint("n", n), others
	move(t, e, fmt.Sprintf("127.0.0.%d", 10+n))
	return e
}

// move gives a member another address.
func move(t *testing.T, e *Etcd, ip string) {
	t.Helper()
	e.TLS, e.Peer = certificate(t, ip), netip.AddrPortFrom(netip.MustParseAddr(ip), PeerPort)
}

// mustRun returns when e is ready. What it returns stops e, once; the end of the test does so too.
func mustRun(t *testing.T, e *Etcd) func() {
	t.Helper()
	began := time.Now()
	err, stop := run(t, e)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s is ready after %s", e.Name, time.Since(began).Round(time.Millisecond))
	once := sync.OnceFunc(func() {
		began := time.Now()
		stop()
		t.Logf("%s has stopped after %s", e.Name, time.Since(began).Round(time.Millisecond))
	})
	t.Cleanup(once)
	return once
}

// cluster runs a lone member, which others join.
func cluster(t *testing.T, size int) (members []*Etcd, stop []func()) {
	t.Helper()
	for n := 1; n <= size; n++ {
		others := &servers{asked: slices.Clone(members)}
		e := member(t, n, others)
		if n == 1 {
			e.Others = nil
		}
		members, stop = append(members, e), append(stop, mustRun(t, e))
	}
	for i, e := range members { // from now on each knows all others
		e.Others = &servers{asked: slices.Concat(members[:i], members[i+1:])}
	}
	return members, stop
}

func TestCluster(t *testing.T) {
	e, stop := cluster(t, 3)
	put(t, e[2], "a", "1")
	stop[1]()
	put(t, e[2], "b", "2")
	want(t, e[0], "b", "2")
	mustRun(t, e[1])
	want(t, e[1], "b", "2")
	stop[0]() // the leader hands over
	put(t, e[2], "c", "3")
	mustRun(t, e[0])
	want(t, e[0], "c", "3")
}

// TestWiped loses one member's data, and the data of the first, which has begun the cluster.
func TestWiped(t *testing.T) {
	e, stop := cluster(t, 3)
	put(t, e[2], "a", "1")
	for _, i := range []int{1, 0} {
		stop[i]()
		remove(t, e[i].Dir)
		mustRun(t, e[i])
		want(t, e[i], "a", "1")
		if got := names(t, e[2]); got != "n1 n2 n3" {
			t.Errorf("the members are %s", got)
		}
	}
}

// TestRemoved removes a member that is stopped, and one that runs: each joins again.
func TestRemoved(t *testing.T) {
	e, stop := cluster(t, 3)
	stop[1]()
	members := as(e[0])
	if err := members.Remove(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	put(t, e[0], "a", "1")
	mustRun(t, e[1])
	want(t, e[1], "a", "1")
	if _, err := os.Stat(filepath.Join(e[1].Dir, "removed", "member")); err != nil {
		t.Error("the removed member's data was not kept:", err)
	}

	ended := make(chan error, 1)
	stop[2]()
	ready := make(chan struct{})
	go func() { ended <- e[2].Run(t.Context(), func() { close(ready) }) }()
	<-ready
	if err := members.Remove(t.Context(), "n3"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, errRemoved) {
		t.Errorf("a member that is removed ends with %v", err)
	}
	mustRun(t, e[2])
	want(t, e[2], "a", "1")
	if got := names(t, e[2]); got != "n1 n2 n3" {
		t.Errorf("the members are %s", got)
	}
}

// TestMoved gives one of three another address while it is away for so long that it needs the whole database.
func TestMoved(t *testing.T) {
	e, stop := cluster(t, 3)
	stop[1]()
	fill(t, e[0], 2*catchUpOthers)
	move(t, e[1], "127.0.0.22")
	mustRun(t, e[1])
	want(t, e[1], "last", "x")
	stop[2]()
	put(t, e[0], "a", "1") // needs it
}

// TestJoinOld joins a cluster whose log does not reach back to its beginning.
func TestJoinOld(t *testing.T) {
	e, _ := cluster(t, 1)
	fill(t, e[0], 2000)
	n2 := member(t, 2, &servers{asked: e})
	mustRun(t, n2)
	want(t, n2, "last", "x")
}

// TestReset loses two of three for good, as far as the third knows. They come back together, with a quorum of what was.
func TestReset(t *testing.T) {
	e, stop := cluster(t, 3)
	put(t, e[2], "a", "1")
	for i := range e {
		stop[i]()
	}
	var requested atomic.Bool
	requested.Store(true)
	e[0].Reset = Reset{Pending: requested.Load, Finish: func() error { requested.Store(false); return nil }}
	mustRun(t, e[0])
	want(t, e[0], "a", "1")
	if got := names(t, e[0]); got != "n1" {
		t.Errorf("the members are %s", got)
	}
	put(t, e[0], "b", "2")
	var others sync.WaitGroup
	for _, other := range e[1:] {
		others.Go(func() { mustRun(t, other) })
	}
	others.Wait()
	for _, one := range e {
		want(t, one, "b", "2")
		if got := names(t, one); got != "n1 n2 n3" {
			t.Errorf("the members are %s", got)
		}
	}
	if requested.Load() {
		t.Error("the request is still there")
	}
}

// TestResetFromBehind: what was reset has not had the last writes, and then has others of the same revisions. The members that had them join again.
func TestResetFromBehind(t *testing.T) {
	e, stop := cluster(t, 3)
	stop[0]()
	put(t, e[2], "a", "1")
	stop[1]()
	stop[2]()
	requested := true
	e[0].Reset = Reset{Pending: func() bool { return requested }, Finish: func() error { requested = false; return nil }}
	mustRun(t, e[0])
	put(t, e[0], "b", "2")
	put(t, e[0], "c", "3")
	mustRun(t, e[1])
	want(t, e[1], "b", "2")
	want(t, e[1], "a", "")
}

// TestInterruptedJoin leaves a learner that never came.
func TestInterruptedJoin(t *testing.T) {
	e, _ := cluster(t, 1)
	lost := join.AddMember{Name: "n2", PeerURL: "https://127.0.0.12:2380"}
	known := &servers{asked: e}
	if _, err := known.AddMember(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	n2 := member(t, 2, known)
	mustRun(t, n2)
	if got := names(t, n2); got != "n1 n2" {
		t.Errorf("the members are %s", got)
	}
}

// TestClear: a database without a log is removed before a join if it is what an interrupted start left, and kept otherwise.
func TestClear(t *testing.T) {
	for size, kept := range map[int64]bool{almostEmpty / 2: false, almostEmpty + 1: true} {
		e := &Etcd{Dir: filepath.Join(t.TempDir(), "etcd")}
		db := filepath.Join("member", "snap", "db")
		if err := os.MkdirAll(filepath.Dir(filepath.Join(e.Dir, db)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(e.Dir, db), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := e.clear(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(e.Dir, db)); err == nil {
			t.Errorf("a database of %d bytes stays in place", size)
		}
		if info, err := os.Stat(filepath.Join(e.Dir, "removed", db)); (err == nil) != kept || kept && info.Size() != size {
			t.Errorf("a database of %d bytes: %v", size, err)
		}
	}
}

// TestPeersStayClosed: what is left of a start opens no port for peers after the member has ended.
func TestPeersStayClosed(t *testing.T) {
	e, _ := cluster(t, 1)
	if err := e[0].OpenPeers(t.Context()); err != nil {
		t.Fatal(err)
	}
	e[0].closePeers()
	if err := e[0].openPeers(); !errors.Is(err, errNotRunning) {
		t.Errorf("the port for peers is opened again: %v", err)
	}
}

// TestTakenPort wants a sentence on either side.
func TestTakenPort(t *testing.T) {
	e, _ := cluster(t, 1)
	taken, err := net.Listen("tcp", e[0].Peer.String())
	if err != nil {
		t.Fatal(err)
	}
	err = e[0].OpenPeers(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another program on n1 listens on 127.0.0.11:2380") {
		t.Errorf("the first server says %v", err)
	}
	taken.Close()
	n2 := member(t, 2, &servers{asked: e})
	if taken, err = net.Listen("tcp", n2.Peer.String()); err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err, _ := run(t, n2); err == nil || !strings.Contains(err.Error(), "another program on n2 listens on 127.0.0.12:2380") {
		t.Errorf("the second server says %v", err)
	}
	put(t, e[0], "a", "1")
	if got := names(t, e[0]); got != "n1" {
		t.Errorf("the members are %s", got)
	}
}

func names(t *testing.T, e *Etcd) string {
	t.Helper()
	list, err := as(e).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range list {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// fill writes n keys and "last".
func fill(t *testing.T, e *Etcd, n int) {
	t.Helper()
	c := client(t, e)
	defer c.Close()
	var writers sync.WaitGroup
	for w := range 50 {
		writers.Go(func() {
			for i := range n / 50 {
				if _, err := c.Put(t.Context(), fmt.Sprint("key", w, i%10), "x"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	if _, err := c.Put(t.Context(), "last", "x"); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, e *Etcd, key, value string) {
	t.Helper()
	if got := get(t, e, key); got != value {
		t.Errorf("%s reads %q from %s, not %q", e.Name, got, key, value)
	}
}

func put(t *testing.T, e *Etcd, key, value string) {
	t.Helper()
	c := client(t, e)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	began := time.Now()
	if _, err := c.Put(ctx, key, value); err != nil {
		t.Fatalf("writing to %s: %v", e.Name, err)
	}
	t.Logf("wrote to %s in %s", e.Name, time.Since(began).Round(time.Millisecond))
}

func get(t *testing.T, e *Etcd, key string) string {
	t.Helper()
	c := client(t, e)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got, err := c.Get(ctx, key)
	if err != nil {
		t.Fatalf("reading from %s: %v", e.Name, err)
	}
	if len(got.Kvs) == 0 {
		return ""
	}
	return string(got.Kvs[0].Value)
}
