package front

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/logs"
	"github.com/coracle-dev/coracle/pkg/core/progress"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/redact"
)

// output is where people see what happens: a display on a terminal, else lines of log on stderr. All lines are kept in
// the ring on disk.
type output struct {
	ring    *logs.Ring
	plain   progress.Plain
	display *progress.Display // nil for plain lines
	json    bool
	end     context.CancelFunc
	// stopping is set when parts are asked to stop: what they complain about then is for the log only.
	stopping atomic.Bool
}

// newOutput takes over logrus' standard logger, so that the front's lines go the way of the halves'. The display is
// for who wants to see a start, not for who asked for details or for a machine's format.
func newOutput(cfg config.Config, view func() progress.View) *output {
	terminal := progress.IsTerminal(os.Stderr)
	o := &output{
		ring:  logs.OpenRing(cfg.Dirs.LogFile()),
		plain: progress.Plain{W: os.Stderr, Colour: terminal && os.Getenv("NO_COLOR") == ""},
		json:  cfg.Log.Format == "json",
		end:   func() {},
	}
	o.ring.Clean = redact.New(cfg.Join.Token, cfg.Join.AgentToken).String
	if level := logs.Level(cfg.Log, ""); terminal && !o.json && level <= logrus.InfoLevel && os.Getenv("TERM") != "dumb" {
		o.display = &progress.Display{
			Out:  os.Stderr,
			Size: terminalSize,
			View: view,
		}
	}
	logs.Apply(logrus.StandardLogger(), cfg.Log, false)
	logrus.SetOutput(lineWriter{o})
	return o
}

// start shows the display, redrawn when a process has written its state.
func (o *output) start(cfg config.Config) {
	if o.display == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	changed, err := state.Watch(ctx, cfg.Dirs)
	if err != nil {
		logrus.WithError(err).Debug("watching the state files") // the display still moves on its own
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.display.Run(ctx, changed)
	}()
	o.end = func() {
		cancel()
		<-done
	}
}

// stop ends the display, leaving the last frame if keep is true, and prints text.
func (o *output) stop(keep bool, text string) {
	if o.display != nil {
		o.end()
		o.display.End(keep, text)
	}
}

// close keeps what ended the run, if anything did, and makes sure that the ring is on the disk.
func (o *output) close(err error) {
	if err != nil {
		o.record(err)
	}
	o.ring.Close()
}

// record keeps an error that is shown elsewhere.
func (o *output) record(err error) {
	entry := logrus.WithError(err)
	entry.Time, entry.Level, entry.Message = time.Now(), logrus.ErrorLevel, "coracle ended"
	if text, err := logrus.StandardLogger().Formatter.Format(entry); err == nil {
		o.ring.Line(strings.TrimSuffix(string(text), "\n"))
	}
}

func (o *output) line(line string) {
	o.ring.Line(line)
	o.show(line)
}

func (o *output) show(line string) {
	if o.display != nil {
		o.display.Line(line)
		return
	}
	o.plain.Line(line)
}

// etcdClient marks lines of kube-apiserver's client of etcd. It has a logger of its own, made before main and without a
// working switch, which tells of each of many tries; who made the request says what became of it.
const etcdClient = `"logger":"etcd-client"`

// program takes a line of a half. What is no log line, such as a panic, becomes one where lines are for machines.
func (o *output) program(program, line string) {
	if strings.HasPrefix(line, "{") && strings.Contains(line, etcdClient) {
		return
	}
	if o.json && (line == "" || line[0] != '{') {
		logrus.WithField(logs.Component, program).Warn(line)
		return
	}
	if o.display != nil && o.stopping.Load() {
		o.ring.Line(line)
		return
	}
	o.line(line)
}

// lineWriter hands logrus' lines on without their end.
type lineWriter struct{ o *output }

func (w lineWriter) Write(p []byte) (int, error) {
	if len(p) > 0 {
		w.o.line(string(p[:len(p)-1]))
	}
	return len(p), nil
}

func terminalSize() (columns, rows int) {
	size, err := unix.IoctlGetWinsize(int(os.Stderr.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}

// since is a duration for people.
func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }
