package supervise

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Systemd is the service manager that started this process, if one did. Its methods do nothing otherwise.
type Systemd struct {
	socket   string
	watchdog time.Duration // how often it wants to hear from us, 0 for never
}

// TakeSystemd reads what a service manager said in the environment and takes it out, so that no child believes
// itself to be meant.
func TakeSystemd() Systemd {
	s := Systemd{socket: take("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(take("WATCHDOG_USEC"), 10, 64)
	pid := take("WATCHDOG_PID")
	if err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		s.watchdog = time.Duration(usec) * time.Microsecond
	}
	return s
}

func take(name string) string {
	value := os.Getenv(name)
	os.Unsetenv(name)
	return value
}

// Notify sends assignments such as READY=1 in one message.
func (s Systemd) Notify(assignments ...string) {
	if s.socket == "" {
		return
	}
	conn, err := net.Dial("unixgram", s.socket) // a leading @ is an abstract name to both
	if err != nil {
		return // a manager that does not listen has nothing to be told
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(strings.Join(assignments, "\n")))
}

// Status replaces the one line that systemctl shows.
func (s Systemd) Status(text string) { s.Notify("STATUS=" + oneLine(text)) }

// Watch says that we are alive, twice as often as asked for, until ctx is done.
func (s Systemd) Watch(ctx context.Context) {
	if s.socket == "" || s.watchdog == 0 {
		return
	}
	tick := time.NewTicker(s.watchdog / 2)
	defer tick.Stop()
	for {
		s.Notify("WATCHDOG=1")
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
