package clocks

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/clock"
	"github.com/coracle-dev/coracle/test/executable"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// program is the name of this test binary on the host; there it tells what its clocks show. Its name is as coracle's are.
const program = "/var/lib/coracle/coracle-tell"

func TestMain(m *testing.M) {
	if os.Args[0] == program {
		tell()
		return
	}
	os.Exit(hosts.Main(m))
}

// tell tells the time at once, then for each line that it reads; at the line "child" another one tells it.
func tell() {
	began := time.Now()
	fmt.Println(began.UnixNano(), 0)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if in.Text() == "child" {
			cmd := exec.Command(program)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			_ = cmd.Run() // what it says is missing then
			continue
		}
		fmt.Println(time.Now().UnixNano(), time.Since(began).Nanoseconds())
	}
}

// teller is a program on the host that tells the time.
type teller struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

// next is the wall time that it tells next, and how long it has run.
func (p teller) next(ask string) (wall time.Time, ran time.Duration) {
	p.t.Helper()
	if ask != "" {
		fmt.Fprintln(p.in, ask)
	}
	line, err := p.out.ReadString('\n')
	var ns int64
	if err == nil {
		_, err = fmt.Sscan(line, &ns, &ran)
	}
	if err != nil {
		p.t.Fatalf("%q: %v", line, err)
	}
	return time.Unix(0, ns), ran
}

// TestClock jumps under programs that run on a host.
func TestClock(t *testing.T) {
	slots.Take(t)
	if os.Geteuid() != 0 {
		t.Skip("hosts are made of namespaces, which needs root")
	}
	h := hosts.New(t, nil, "clocked", hosts.Options{})
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = executable.Write(h.Data(filepath.Base(program)), self)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := New(t)
	c.Give(h)
	c.Set(Epoch)
	start := func() teller {
		cmd := h.Command(program)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return teller{t, in, bufio.NewReader(out)}
	}
	check := func(what string, got time.Time) {
		t.Helper()
		if d := got.Sub(c.Now()); d.Abs() > 5*time.Second {
			t.Errorf("%s: the program's clock says %s, and the host's %s", what, got.UTC(), c.Now().UTC())
		}
	}
	began := time.Now()
	p := start()
	wall, _ := p.next("")
	check("in 1970", wall)
	for range 20 {
		wall, _ := p.next("child")
		check("a child's first look", wall)
	}
	for _, by := range []time.Duration{24 * time.Hour, -2 * time.Hour, 56 * 365 * 24 * time.Hour} {
		c.Jump(by)
		wall, ran := p.next("again")
		check("after a jump", wall)
		if most := time.Since(began) + 10*time.Second; ran > most || ran < 0 {
			t.Errorf("its monotonic clock jumped: it says that it has run for %s", ran)
		}
	}
	c.Set(time.Now())
	stop := c.Slew(10 * time.Second) // in each second
	hosts.Eventually(t, 10*time.Second, func() error {
		if wall, _ := p.next("again"); time.Until(wall) < 3*time.Second {
			return fmt.Errorf("its clock is only %s ahead", time.Until(wall))
		}
		return nil
	})
	stop()
	set, err := clock.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := announce(os.Getpid()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-set:
		case <-time.After(10 * time.Second):
			t.Fatal("who waits until the clock is set was not told")
		}
	}
}
