package supervise

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/heldsocket"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// TestMain lets this test program play the supervised programs, and a front that is killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "play" {
		os.Exit(play(os.Args[2]))
	}
	os.Exit(m.Run())
}

func play(role string) int {
	switch role {
	case "steady": // ready at once, ends well when asked
		say("READY=1")
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("up")
		<-asked
		fmt.Print("bye") // without an end of line
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		say("READY=1")
		forever()
	case "lively": // gives signs of life
		for say("READY=1"); ; time.Sleep(20 * time.Millisecond) {
			say("WATCHDOG=1")
			fmt.Println("beat")
		}
	case "broken":
		fmt.Println("level one")
		fmt.Print("the last words")
		return 7
	case "removed": // was ready, and learns that the machine is not a node any more
		say("READY=1")
		fmt.Println("node n was removed")
		return int(exitcode.Removed)
	case "leaver": // leaves somebody behind who holds its output open
		left := exec.Command(os.Args[0], "play", "holder")
		left.Stdout = os.Stdout
		if err := left.Start(); err != nil {
			return 1
		}
		fmt.Println("left", left.Process.Pid)
		return 3
	case "holder":
		time.Sleep(2 * time.Minute)
	case "impostor": // somebody else says that it is ready
		other := exec.Command(os.Args[0], "play", "shout")
		if other.Run() != nil {
			return 1
		}
		fmt.Println("somebody has spoken")
		forever()
	case "shout":
		say("READY=1")
	case "server": // tells who it is at the socket that it has
		address, err := netip.ParseAddrPort(os.Args[3])
		if err != nil {
			return 1
		}
		l, err := heldsocket.Take().Listen(address)
		if err != nil || l == nil {
			return 1
		}
		say("READY=1")
		for {
			conn, err := l.Accept()
			if err != nil {
				return 1
			}
			fmt.Fprintln(conn, os.Getpid())
			conn.Close()
		}
	case "front": // runs the program until it is killed
		return playFront(os.Args[3])
	case "init":
		return playInit()
	}
	return 0
}

// forever does not end, and does not look like a deadlock to the runtime either.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

func say(message string) {
	conn, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(message)); err != nil {
		panic(err)
	}
}

func playFront(socket string) int {
	s := &Supervisor{
		Programs: []Program{player("deaf")},
		Socket:   socket,
		Line:     ignoreLine,
		OnChange: func(all []state.Child) {
			if len(all) > 0 && all[0].State == Ready {
				fmt.Println(all[0].PID)
			}
		},
	}
	if err := s.Run(context.Background()); err != nil {
		return 1
	}
	return 0
}

// playInit supervises a program while orphans come and go, as PID 1 does, and checks that nobody stays a zombie
// and that the program's exit status is not lost.
func playInit() int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 10
	}
	children := new(Children)
	go children.ReapOrphans(context.Background())
	for range 20 {
		orphan := exec.Command("/bin/sh", "-c", "(exit 5) & exit 7")
		if err := children.start(orphan); err != nil {
			return 11
		}
		if err := children.wait(orphan); err == nil || orphan.ProcessState.ExitCode() != 7 {
			return 12
		}
	}
	for range 1000 {
		if left, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err == nil && len(left) == 0 {
			return 0
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 13
}

func player(role string) Program {
	return Program{Name: role, Path: os.Args[0], Args: []string{"play", role}, Env: os.Environ()}
}

// watched collects what a supervisor tells, and waits for it.
type watched struct {
	changes chan []state.Child
	lines   chan string
}

func watch(s *Supervisor) *watched {
	w := &watched{changes: make(chan []state.Child, 1000), lines: make(chan string, 1000)}
	s.OnChange = func(all []state.Child) { w.changes <- all }
	s.Line = func(program, line string) { w.lines <- program + "|" + line }
	return w
}

// until returns the first change that satisfies ok.
func (w *watched) until(t *testing.T, what string, ok func([]state.Child) bool) []state.Child {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case all := <-w.changes:
			if ok(all) {
				return all
			}
		case <-timeout:
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// line returns once a line came that contains text.
func (w *watched) line(t *testing.T, text string) string {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case line := <-w.lines:
			if strings.Contains(line, text) {
				return line
			}
		case <-timeout:
			t.Fatalf("no line with %q", text)
		}
	}
}

func allReady(all []state.Child) bool {
	for _, c := range all {
		if c.State != Ready {
			return false
		}
	}
	return len(all) > 0
}

// run runs s in the background; the returned function stops it and returns its error.
func run(t *testing.T, s *Supervisor) (stop func() error) {
	t.Helper()
	if s.Socket == "" {
		s.Socket = filepath.Join(t.TempDir(), "notify.sock")
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }()
	stopped := false
	stop = func() error {
		stopped = true
		cancel()
		return <-result
	}
	t.Cleanup(func() {
		if !stopped {
			_ = stop()
		}
	})
	return stop
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
