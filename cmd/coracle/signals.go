package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sirupsen/logrus"
)

// signals returns a context that ends when we are asked to stop. A second request makes the stop quick. SIGHUP asks
// only where it means that the terminal is gone.
func (f *front) signals() (ctx context.Context, done func()) {
	ctx, stop := context.WithCancel(context.Background())
	received := make(chan os.Signal, 8)
	// SIGPIPE is caught and not looked at: a journal that restarts must not take the cluster along.
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	foreground := isTerminal(os.Stderr) // asked now, because nobody can tell once the terminal is gone
	go func() {
		stopping := false
		for s := range received {
			switch {
			case s == syscall.SIGPIPE, s == syscall.SIGHUP && !foreground:
			case stopping:
				logrus.Warn("stopping now: asked a second time")
				f.super.Hurry()
			default:
				stopping = true
				f.announceStop(s)
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

func (f *front) announceStop(s os.Signal) {
	pods := "pods go on running"
	if f.cfg.DrainOnStop {
		pods = "pods are stopped too"
	}
	var order []string
	for i := len(f.halves) - 1; i >= 0; i-- {
		order = append(order, f.halves[i])
	}
	text := fmt.Sprintf("stopping %s, as asked by %s; %s", strings.Join(order, ", then "), signalWord(s), pods)
	f.systemd.Notify("STOPPING=1", "STATUS="+text)
	logrus.Info(text)
	f.out.stop(false, "\n"+text+"\n")
}

func signalWord(s os.Signal) string {
	if s == os.Interrupt {
		return "Ctrl-C"
	}
	return s.String()
}
