package slots

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// holderEnv makes this test binary take slots in the directory that it names, and hold them until it is killed.
const holderEnv = "CORACLE_TEST_HOLD_SLOTS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holderEnv); dir != "" {
		c := testCounter(dir)
		release, err := c.take(nil, Row{Slots: 3})
		if err != nil {
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString("held\n")
		time.Sleep(time.Minute) // the test kills it long before
		release()
	}
	os.Exit(m.Run())
}

func testCounter(dir string) *counter {
	return &counter{dir: dir, total: 4, poll: time.Millisecond, line: &queue{}}
}

// directory is where the files of all tests of this machine are too, because these tests wait only so long.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(place("/dev/shm"), "coracle-slots-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// await fails the test unless the channel is closed, or stays open, as wanted.
func await(t *testing.T, what string, c <-chan struct{}, want bool) {
	t.Helper()
	patience := 50 * time.Millisecond
	if want {
		patience = 10 * time.Second
	}
	select {
	case <-c:
		if !want {
			t.Fatalf("%s has its slots", what)
		}
	case <-time.After(patience):
		if want {
			t.Fatalf("%s still waits", what)
		}
	}
}

// take takes slots in the background.
func take(t *testing.T, c *counter, r Row) (granted chan struct{}, release func()) {
	t.Helper()
	granted, end := make(chan struct{}), make(chan struct{})
	queued := make(chan struct{})
	go func() {
		close(queued)
		release, err := c.take(t.Context().Done(), r)
		if err != nil {
			return
		}
		close(granted)
		<-end
		release()
	}()
	<-queued
	return granted, func() { close(end) }
}

func TestSlots(t *testing.T) {
	c := testCounter(directory(t))
	first, endFirst := take(t, c, Row{Test: "first", Slots: 3})
	await(t, "the first", first, true)
	alone, endAlone := take(t, c, Row{Test: "alone", Alone: true, Seconds: 90})
	long, endLong := take(t, c, Row{Test: "long", Slots: 2, Seconds: 60})
	await(t, "a test that needs more than is free", long, false)
	short, endShort := take(t, c, Row{Test: "short", Slots: 1, Seconds: 5})
	await(t, "a test that would overtake a longer one", short, false)
	endFirst()
	await(t, "the long one", long, true)
	await(t, "the short one", short, true)
	await(t, "a test that needs all slots", alone, false)
	endLong()
	await(t, "a test that needs all slots", alone, false)
	endShort()
	await(t, "a test that needs all slots", alone, true)
	after, endAfter := take(t, c, Row{Test: "after", Slots: 1})
	await(t, "a test beside one that is alone", after, false)
	endAlone()
	await(t, "the last one", after, true)
	endAfter()
}

// TestKilled kills a process that holds slots.
func TestKilled(t *testing.T) {
	dir := directory(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the holder says %q: %v", line, err)
	}
	next, end := take(t, testCounter(dir), Row{Test: "next", Slots: 2})
	await(t, "a test that needs what another process holds", next, false)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	await(t, "it", next, true)
	end()
}

// TestRelease: slots that are given back while another test looks at them are no error.
func TestRelease(t *testing.T) {
	c := testCounter(directory(t))
	for range 2000 {
		file, err := c.enqueue(ticket{Test: "ends"})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = os.Remove(file.Name())
			_ = file.Close()
		}()
		_, _, err = inspect(file.Name())
		<-ended
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPlace wants the files on a tmpfs only where it is one.
func TestPlace(t *testing.T) {
	disk := t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(disk, &fs); err != nil {
		t.Fatal(err)
	}
	want := os.TempDir()
	if fs.Type == unix.TMPFS_MAGIC {
		want = disk
	}
	if got := place(disk); got != want {
		t.Errorf("the place is %s, want %s", got, want)
	}
	if got := place(disk + "/missing"); got != os.TempDir() {
		t.Errorf("without /dev/shm, the place is %s", got)
	}
}
