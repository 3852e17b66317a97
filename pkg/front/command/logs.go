package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/logs"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/progress"
)

const (
	logsLong = `Print what coracle on this machine has logged, all its parts together. The last 16 MiB are kept on the disk, through
power losses and restarts, wherever else the log goes too. It needs root.`
	logsExample = `
# The last hundred lines, and what comes
coracle logs -n 100 -f

# What went wrong in the last hour
coracle logs --since 1h --level warn

# One part only
coracle logs --component kubelet`
)

// logsCommand prints the ring of log files.
func logsCommand() *cobra.Command {
	c := &cobra.Command{Use: "logs", Short: "Print what coracle on this machine has logged", Long: logsLong, Example: logsExample, Args: NoArgs}
	c.Flags().SortFlags = false
	follow := c.Flags().BoolP("follow", "f", false, "Go on with lines as they come")
	count := c.Flags().IntP("lines", "n", -1, "How many lines to begin with at most (default all, or 20 with --follow)")
	since := c.Flags().String("since", "", "Only lines from then on: a duration like 90m, or a time like 2006-01-02T15:04:05Z")
	component := c.Flags().String("component", "", "Only lines of this part: etcd, kubelet, ... as in coracle status")
	level := c.Flags().String("level", "", "Only lines as serious as this: error, warn, info, debug")
	w := whereFlags(c)
	_ = c.RegisterFlagCompletionFunc("level", cobra.FixedCompletions([]string{"error", "warn", "info", "debug"}, cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(c *cobra.Command, _ []string) error {
		filter, err := logFilter(*since, *component, *level, time.Now())
		if err != nil {
			return err
		}
		if *count < 0 && *follow {
			*count = 20
		}
		cfg, ok, err := w.config()
		if err != nil {
			return err
		}
		if !ok {
			cfg.Dirs = w.dirs()
		}
		return printLogs(c.Context(), cfg.Dirs, filter, *count, *follow)
	}
	return c
}

// printLogs prints the lines that filter lets through: of those that are there the last most ones, and new ones if follow
// is true.
func printLogs(ctx context.Context, dirs paths.Dirs, filter *logs.Filter, most int, follow bool) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := &logPrinter{out: bufio.NewWriter(os.Stdout), most: most, colour: progress.IsTerminal(os.Stdout) && os.Getenv("NO_COLOR") == ""}
	err := p.print(ctx, dirs.LogFile(), filter, follow)
	if err == nil && len(logs.Files(dirs.LogFile())) == 0 {
		_, err = os.Stat(dirs.LogFile())
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: the log is for root only, put sudo before the command", err)
	case errors.Is(err, syscall.EPIPE): // the reader has closed its end, as head does
		return nil
	case errors.Is(err, fs.ErrNotExist) && !follow:
		return fmt.Errorf("there is no log in %s: coracle has not run with this data directory", dirs.Data)
	}
	return err
}

func logFilter(since, component, level string, now time.Time) (*logs.Filter, error) {
	begin, err := sinceTime(since, now)
	if err != nil {
		return nil, err
	}
	f := &logs.Filter{Component: component, Since: begin}
	if level != "" {
		l, err := logrus.ParseLevel(level)
		if err != nil {
			return nil, exitcode.Usagef("--level: %q is none of error, warn, info and debug", level)
		}
		f.Level = l
	}
	return f, nil
}

// sinceTime reads the value of --since; "" is the zero time.
func sinceTime(since string, now time.Time) (time.Time, error) {
	if since == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(since); err == nil {
		return now.Add(-ago), nil
	}
	begin, err := time.Parse(time.RFC3339, since)
	if err != nil {
		return begin, exitcode.Usagef("--since: %q is neither a duration like 90m nor a time like 2006-01-02T15:04:05Z", since)
	}
	return begin, nil
}

// logPrinter prints lines: of the existing ones the last most, and all that follow.
type logPrinter struct {
	out    *bufio.Writer
	most   int // -1 means all
	colour bool
	tail   []string
	live   bool
}

func (p *logPrinter) print(ctx context.Context, path string, filter *logs.Filter, follow bool) error {
	if follow {
		return logs.Follow(ctx, path, filter, p.line, p.caughtUp)
	}
	if err := logs.Read(path, filter, p.line); err != nil {
		return err
	}
	return p.caughtUp()
}

// caughtUp prints the last of the existing lines; those that follow are printed at once.
func (p *logPrinter) caughtUp() error {
	p.live = true
	for _, s := range p.tail {
		if err := p.line(s); err != nil {
			return err
		}
	}
	p.tail = nil
	return p.out.Flush()
}

func (p *logPrinter) line(s string) error {
	if !p.live && p.most >= 0 {
		p.tail = append(p.tail, s)
		if len(p.tail) > p.most {
			p.tail = p.tail[1:]
		}
		return nil
	}
	if p.colour {
		s = logs.Colour(s)
	}
	if _, err := p.out.WriteString(s + "\n"); err != nil || !p.live {
		return err
	}
	return p.out.Flush()
}
