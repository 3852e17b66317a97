package front

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/progress"
)

// SameSignal is how soon after a request to stop another one is taken for the same one, as when a shell passes it on to all.
const SameSignal = 300 * time.Millisecond

// signals returns a context that ends when we are asked to stop. A second request makes the stop quick. SIGHUP asks
// only where it means that the terminal is gone.
func (f *front) signals() (ctx context.Context, done func()) {
	ctx, stop := context.WithCancel(context.Background())
	received := make(chan os.Signal, 8)
	// SIGPIPE is caught and not looked at: a journal that restarts must not take the cluster along.
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	foreground := progress.IsTerminal(os.Stderr) // asked now, because nobody can tell once the terminal is gone
	if ttl := f.asked.Ephemeral.TTL; ttl > 0 {
		time.AfterFunc(ttl, func() {
			f.announceStop(fmt.Sprintf("as its time to live of %s is over", ttl))
			stop()
		})
	}
	go func() {
		var asked time.Time // zero as long as nobody has
		for s := range received {
			switch {
			case s == syscall.SIGPIPE, s == syscall.SIGHUP && !foreground:
			case !asked.IsZero() && time.Since(asked) < SameSignal: // of the first, as when a shell passes it on to all
			case !asked.IsZero():
				logrus.Warn("stopping now: asked a second time")
				f.super.Hurry()
			default:
				asked = time.Now()
				f.announceStop("as asked by " + SignalName(s))
				stop()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(received)
		close(received)
		stop()
	}
}

func (f *front) announceStop(why string) {
	pods := "pods go on running"
	switch {
	case f.asked.Ephemeral.On:
		pods = "then the cluster is removed"
	case f.asked.DrainOnStop, os.Getpid() == 1:
		pods = "pods are stopped too"
	}
	var order []string
	for i := len(f.halves) - 1; i >= 0; i-- {
		order = append(order, f.halves[i])
	}
	text := fmt.Sprintf("stopping %s, %s; %s", strings.Join(order, ", then "), why, pods)
	f.systemd.Notify("STOPPING=1", "STATUS="+text)
	logrus.Info(text)
	f.out.stopping.Store(true)
	f.out.stop(false, "\n"+text+"\n")
}

// SignalName is how people know a signal.
func SignalName(s os.Signal) string {
	if s == os.Interrupt {
		return "Ctrl-C"
	}
	return s.String()
}
