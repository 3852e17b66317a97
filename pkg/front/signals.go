package front

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/progress"
)

// SameSignal is how long after a request to stop another one is ignored: a shell may send the same one to all processes.
const SameSignal = 300 * time.Millisecond

// signals returns a context that ends when a signal asks to stop, or when an ephemeral cluster's time to live is over. A second
// signal makes the stop quick. SIGHUP counts only where it means that the terminal is gone.
func (f *front) signals() (ctx context.Context, done func()) {
	ctx, stop := context.WithCancel(context.Background())
	received := make(chan os.Signal, 8)
	// SIGPIPE is caught and ignored: a restart of journald must not end the cluster.
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	foreground := progress.IsTerminal(os.Stderr) // now, because it cannot be found out once the terminal is gone
	if ttl := f.asked.Ephemeral.TTL; ttl > 0 {
		time.AfterFunc(ttl, func() {
			f.announceStop(fmt.Sprintf("as its time to live of %s is over", ttl))
			stop()
		})
	}
	go func() {
		var asked time.Time // zero until the first signal
		hurry := sync.OnceFunc(func() { close(f.super.Hurry) })
		for s := range received {
			switch {
			case s == syscall.SIGPIPE, s == syscall.SIGHUP && !foreground:
			case !asked.IsZero() && time.Since(asked) < SameSignal:
			case !asked.IsZero():
				logrus.Warn("stopping now: asked a second time")
				hurry()
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
	for i := len(f.children) - 1; i >= 0; i-- {
		order = append(order, f.children[i])
	}
	text := fmt.Sprintf("stopping %s, %s; %s", strings.Join(order, ", then "), why, pods)
	f.systemd.Notify("STOPPING=1", "STATUS="+text)
	logrus.Info(text)
	f.out.stopping.Store(true)
	f.out.stop(false, "\n"+text+"\n")
}

// podsGoOn reports whether pods, and the gateway, go on when this process ends.
func (f *front) podsGoOn() bool {
	return !f.asked.Ephemeral.On && !f.asked.DrainOnStop && os.Getpid() != 1
}

// SignalName returns the name of a signal for messages.
func SignalName(s os.Signal) string {
	if s == os.Interrupt {
		return "Ctrl-C"
	}
	return s.String()
}
