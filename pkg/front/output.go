package front

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/logs"
	"github.com/coracle-dev/coracle/pkg/core/progress"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/redact"
)

// output shows what happens: as a display on a terminal, else as lines of log on stderr. The ring of log files on disk keeps
// all lines.
type output struct {
	ring    *logs.Ring
	stderr  *logs.Unblocked // nobody waits for who reads it
	plain   progress.Plain
	display *progress.Display // nil for plain lines
	json    bool
	end     context.CancelFunc
	// stopping is set when the child processes are asked to stop: their lines then go to the log files only.
	stopping atomic.Bool
}

// newOutput redirects logrus' standard logger, so that the front's lines go where those of the child processes go. There is no
// display for a log level below info, or for JSON.
func newOutput(cfg config.Config, stderr *os.File, view func() progress.View) *output {
	terminal := progress.IsTerminal(stderr)
	unblocked := &logs.Unblocked{To: logs.Bounded(duplicate(stderr), os.Getenv("RC_SVCNAME"))}
	o := &output{
		ring:   logs.OpenRing(cfg.Dirs.LogFile()),
		stderr: unblocked,
		plain:  progress.Plain{W: unblocked, Colour: terminal && os.Getenv("NO_COLOR") == ""},
		json:   cfg.Log.Format == "json",
		end:    func() {},
	}
	o.ring.Clean = redact.New(cfg.Join.Token, cfg.Join.AgentToken).String
	if level := logs.Level(cfg.Log, ""); terminal && !o.json && level <= logrus.InfoLevel && os.Getenv("TERM") != "dumb" {
		o.display = &progress.Display{
			Out:  unblocked,
			Size: terminalSize,
			View: view,
		}
	} else {
		unblocked.Missing = missing
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
		logrus.WithError(err).Debug("watching the state files") // the display is also redrawn periodically
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

// close records the error that ended the run, if any, and syncs the ring to disk.
func (o *output) close(err error) {
	if err != nil {
		o.record(err)
	}
	o.ring.Close()
	o.flush()
}

// flush waits a moment for who reads stderr. If nobody does, the rest of this process, which writes there directly, writes to nowhere.
func (o *output) flush() {
	if o.stderr.Flush(flushTimeout) {
		return
	}
	if nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		_ = unix.Dup3(int(nowhere.Fd()), unix.Stderr, 0)
		nowhere.Close()
	}
}

const flushTimeout = 2 * time.Second

// duplicate returns another descriptor of f, which can be written to while f itself is replaced.
func duplicate(f *os.File) *os.File {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return f
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// missing is the line in place of lines that nobody read.
func missing(lines int) string {
	text, _ := format(logrus.WarnLevel, fmt.Sprintf("%d lines are missing here, because nobody read them; coracle logs has them", lines), nil)
	return text
}

func format(level logrus.Level, message string, err error) (string, error) {
	entry := logrus.NewEntry(logrus.StandardLogger())
	if err != nil {
		entry = entry.WithError(err)
	}
	entry.Time, entry.Level, entry.Message = time.Now(), level, message
	text, err := logrus.StandardLogger().Formatter.Format(entry)
	return string(text), err
}

// record writes an error to the ring only: main prints it.
func (o *output) record(err error) {
	if text, err := format(logrus.ErrorLevel, "coracle ended", err); err == nil {
		o.ring.Line(strings.TrimSuffix(text, "\n"))
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

// etcdClient marks lines of kube-apiserver's etcd client, which logs each of many retries. They are dropped here because that
// logger is made before main and cannot be switched off; the caller of the request logs its outcome.
const etcdClient = `"logger":"etcd-client"`

// program takes a line of a child process. With log format json, a line that is not JSON, as of a panic, is wrapped in one.
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

// lineWriter passes logrus' lines on, without the newline.
type lineWriter struct{ o *output }

func (w lineWriter) Write(p []byte) (int, error) {
	if len(p) > 0 {
		w.o.line(string(p[:len(p)-1]))
	}
	return len(p), nil
}

func terminalSize() (columns, rows int) {
	columns, rows, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil || columns == 0 || rows == 0 {
		return 80, 24
	}
	return columns, rows
}

// since returns the time since t, rounded to 10 ms.
func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }
