// Package slots shares the cores and the memory of a machine among the tests of all test processes that run on it.
//
// The machine has a fixed number of slots. A test that starts machines or clusters takes as many as its row in
// test/slots/budget.txt says and gives them back when it ends. Tests that compare or change the whole machine, and those
// that measure time, take all of them. Where several tests wait, the one whose row has the most seconds goes first: the
// longest test decides when the whole run ends.
//
// A slot is held by a locked file, so that it becomes free when its process ends, however that happens.
package slots

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Environment variables: the number of slots, and the directory with the locked files.
const (
	numberEnv = "CORACLE_TEST_SLOTS"
	dirEnv    = "CORACLE_TEST_SLOTS_DIR"
)

// perTwoCores is the number of slots for two cores. A running cluster needs little of a core, a starting one a whole core.
// With more slots, tests that start at the same time exceed their timeouts.
const perTwoCores = 7

// held has the names of the tests of this process that have slots.
var held sync.Map

// line has the tests of this process that wait.
var line queue

// queue has the waiting tests of one process. Only the first one reads the files of all processes: if a hundred waiting
// tests did, they would use half a core.
type queue struct {
	mu      sync.Mutex
	waiting []ticket
}

func (q *queue) join(t ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, t)
}

func (q *queue) leave(t ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(o ticket) bool { return o == t })
}

// first reports whether no other test of the queue goes before this one.
func (q *queue) first(t ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !slices.ContainsFunc(q.waiting, func(o ticket) bool { return o.before(t) })
}

// Take makes the test a parallel one and waits until the slots that it needs are free. They are free again when the test
// and its subtests have ended. It is called before anything else in a test; a subtest of a test that has slots needs none.
func Take(t *testing.T) {
	t.Helper()
	row, err := find(testPackage(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	began := time.Now()
	c, err := open()
	if err != nil {
		t.Fatal(err)
	}
	release, err := c.take(t.Context().Done(), row)
	if err != nil {
		t.Fatal(err)
	}
	granted := time.Now()
	held.Store(t.Name(), true)
	t.Cleanup(func() {
		held.Delete(t.Name())
		release()
		t.Logf("slots: held for %.1f s", time.Since(granted).Seconds()) // test/report reads this line and the next one
	})
	t.Logf("slots: waited %.1f s for %d of %d", granted.Sub(began).Seconds(), min(row.Slots, c.total), c.total)
}

// Require fails a test that has not taken slots and is not a subtest of one that has.
func Require(t testing.TB) {
	t.Helper()
	for name := t.Name(); name != "."; name = filepath.Dir(name) {
		if _, ok := held.Load(name); ok {
			return
		}
	}
	if _, ok := t.(*testing.T); ok {
		t.Fatal("this test starts machines: begin it with slots.Take(t), and give it a row in test/slots/budget.txt")
	}
}

// counter grants the slots of a machine.
type counter struct {
	dir   string
	total int
	poll  time.Duration // between two tries of a waiting test
	line  *queue
}

// open makes the directory for the locked files, which all test processes of the machine share.
func open() (*counter, error) {
	c := &counter{dir: os.Getenv(dirEnv), total: max(3, perTwoCores*runtime.NumCPU()/2), poll: 300 * time.Millisecond, line: &line}
	if c.dir == "" {
		c.dir = filepath.Join(place("/dev/shm"), "coracle-test-slots")
	}
	if text := os.Getenv(numberEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s is %q, want a positive number", numberEnv, text)
		}
		c.total = n
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for the slots: %w", err)
	}
	return c, nil
}

// place is where the files of slots are best: in memory, so that nobody who holds the lock waits for a disk under load.
func place(memory string) string {
	var fs unix.Statfs_t
	if unix.Statfs(memory, &fs) != nil || fs.Type != unix.TMPFS_MAGIC || unix.Access(memory, unix.W_OK) != nil {
		return os.TempDir()
	}
	return memory
}

// ticket is the content of a locked file: the request or the grant of a test.
type ticket struct {
	Test    string `json:"test"`
	Slots   int    `json:"slots"`
	Seconds int    `json:"seconds"`
	Since   int64  `json:"since"` // in nanoseconds
	Granted bool   `json:"granted"`
}

// before reports whether a ticket goes before another: the longer test, then the one that has waited longer.
func (a ticket) before(b ticket) bool {
	if a.Seconds != b.Seconds {
		return a.Seconds > b.Seconds
	}
	return a.Since < b.Since
}

// take waits for slots. release gives them back.
func (c *counter) take(done <-chan struct{}, r Row) (release func(), err error) {
	mine := ticket{Test: r.Test, Slots: min(r.Slots, c.total), Seconds: r.Seconds, Since: time.Now().UnixNano()}
	if r.Alone {
		mine.Slots, mine.Seconds = c.total, mine.Seconds-longest // after all tests that can run together
	}
	c.line.join(mine)
	defer c.line.leave(mine)
	var file *os.File
	release = func() {
		if file != nil {
			_ = os.Remove(file.Name())
			_ = file.Close() // which unlocks it
		}
	}
	ticker := time.NewTicker(c.poll)
	defer ticker.Stop()
	for {
		select { // before the first try, so that tests that start together are all in the queue
		case <-done:
			release()
			return nil, errors.New("the test ended while it waited for slots")
		case <-ticker.C:
		}
		if !c.line.first(mine) {
			continue
		}
		if file == nil {
			if file, err = c.enqueue(mine); err != nil {
				return nil, err
			}
		}
		granted, err := c.try(file, mine)
		if err != nil {
			release()
			return nil, err
		}
		if granted {
			return release, nil
		}
	}
}

// enqueue writes a ticket into a locked file.
func (c *counter) enqueue(mine ticket) (*os.File, error) {
	unlock, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	file, err := os.CreateTemp(c.dir, ticketPrefix)
	if err != nil {
		return nil, fmt.Errorf("queueing for slots: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("queueing for slots: %w", err)
	}
	return file, write(file, mine)
}

const ticketPrefix = "ticket-"

func write(file *os.File, t ticket) error {
	data, err := json.Marshal(t)
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteAt(data, 0)
	}
	if err != nil {
		return fmt.Errorf("writing a ticket for slots: %w", err)
	}
	return nil
}

// lock keeps other processes, and other tests of this process, from reading and writing tickets.
func (c *counter) lock() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the slots: %w", err)
	}
	return func() { _ = file.Close() }, nil
}

// try grants the slots of a ticket if they are free and no other ticket goes before it.
func (c *counter) try(file *os.File, mine ticket) (granted bool, err error) {
	unlock, err := c.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	others, err := c.others(file.Name())
	if err != nil {
		return false, err
	}
	free := c.total
	for _, o := range others {
		if o.Granted {
			free -= o.Slots
		} else if o.before(mine) {
			return false, nil
		}
	}
	if free < mine.Slots {
		return false, nil
	}
	mine.Granted = true
	return true, write(file, mine)
}

// others reads the tickets of all tests but one. The files of processes that have ended are removed.
func (c *counter) others(but string) (tickets []ticket, err error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the tickets for slots: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(c.dir, entry.Name())
		if !strings.HasPrefix(entry.Name(), ticketPrefix) || path == but {
			continue
		}
		t, alive, err := inspect(path)
		if err != nil {
			return nil, fmt.Errorf("reading the tickets for slots: %w", err)
		}
		if alive {
			tickets = append(tickets, t)
		}
	}
	return tickets, nil
}

// inspect reads a ticket. Its file is removed if no process holds the lock.
func inspect(path string) (t ticket, alive bool, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, false, nil
	}
	if err != nil {
		return t, false, err
	}
	defer file.Close()
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) { // its test may have removed it since it was opened
			return t, false, err
		}
		return t, false, nil
	}
	return t, true, json.NewDecoder(file).Decode(&t)
}
