package supervise

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestParseMessage(t *testing.T) {
	for _, c := range []struct {
		text string
		want message
	}{
		{"READY=1", message{ready: true}},
		{"READY=0", message{}},
		{"STATUS=half way\nREADY=1\n", message{ready: true, hasStatus: true, status: "half way"}},
		{"WATCHDOG=1", message{alive: true}},
		{"STATUS=", message{hasStatus: true}},
		{"", message{}},
		{"nonsense\n\n=", message{}},
	} {
		if got := parseMessage(c.text); got != c.want {
			t.Errorf("%q: %+v, want %+v", c.text, got, c.want)
		}
	}
}

func TestLineWriter(t *testing.T) {
	for _, c := range []struct {
		chunks, want []string
		rest         string
	}{
		{[]string{"a\nb\n"}, []string{"a", "b"}, ""},
		{[]string{"a", "b", "\nc"}, []string{"ab"}, "c"},
		{[]string{"a\r\n\n"}, []string{"a", ""}, ""},
		{[]string{strings.Repeat("x", maxLine), "y\n"}, []string{strings.Repeat("x", maxLine), "y"}, ""},
	} {
		var got []string
		s := lineWriter{line: func(line string) { got = append(got, line) }}
		for _, chunk := range c.chunks {
			_, _ = s.Write([]byte(chunk))
		}
		if !slices.Equal(got, c.want) || string(s.rest) != c.rest {
			t.Errorf("%.20q: %.20q and %q", c.chunks, got, s.rest)
		}
	}
}

func TestSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "systemd")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	s := TakeSystemd()
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if _, there := os.LookupEnv(name); there {
			t.Errorf("%s is still there", name)
		}
	}
	expect := func(want string) {
		t.Helper()
		buf := make([]byte, 1000)
		n, err := socket.Read(buf)
		if err != nil || string(buf[:n]) != want {
			t.Errorf("got %q (%v), want %q", buf[:n], err, want)
		}
	}
	s.Notify("READY=1", "MAINPID=5")
	expect("READY=1\nMAINPID=5")
	s.Status("two\nlines")
	expect("STATUS=two lines")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx)
	}()
	expect("WATCHDOG=1")
	expect("WATCHDOG=1")
	cancel()
	<-done
}

func TestNoSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", "1")
	s := TakeSystemd()
	s.Notify("READY=1")
	s.Watch(context.Background()) // returns at once
}
