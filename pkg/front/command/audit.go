package command

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/logs"
)

const (
	auditLong = `Print who has done what in the cluster through this server's API: changes, who has read Secrets, and who has entered pods. What nodes and
controllers do is not in it. Each server records the requests that it has answered. It needs root.

The records are kept in the data directory's log/audit. --audit-policy-file records something else, --audit=false nothing.`
	auditExample = `
# What has happened since this morning, and what happens
coracle audit --since 8h -f

# What alice has deleted
coracle audit --user alice --verb delete

# Who has read Secrets of a namespace, for a program
coracle audit --resource secrets --verb get,list,watch --namespace shop -o json`
)

// auditCommand prints the audit log.
func auditCommand() *cobra.Command {
	c := &cobra.Command{Use: "audit", Short: "Show who has done what in the cluster", Long: auditLong, Example: auditExample, Args: NoArgs}
	c.Flags().SortFlags = false
	f := &auditFilter{}
	follow := c.Flags().BoolP("follow", "f", false, "Go on with requests as they come")
	count := c.Flags().IntP("lines", "n", -1, "How many requests to begin with at most (default all, or 20 with --follow)")
	since := c.Flags().String("since", "", "Only requests from then on: a duration like 90m, or a time like 2006-01-02T15:04:05Z")
	c.Flags().StringVar(&f.user, "user", "", "Only requests of this user, or of all users that begin so: NAME or PREFIX*")
	c.Flags().StringSliceVar(&f.verbs, "verb", nil, "Only these: create, update, patch, delete, get, ...")
	c.Flags().StringSliceVar(&f.resources, "resource", nil, "Only requests for these: pods, pods/exec, deployments.apps, ...")
	c.Flags().StringVar(&f.namespace, "namespace", "", "Only requests for objects of this namespace")
	output := OutputFlag(c, "", "json")
	w := whereFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		begin, err := sinceTime(*since, time.Now())
		if err != nil {
			return err
		}
		f.since, f.raw = begin, *output == "json"
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
		return printAudit(c.Context(), cfg.Dirs.AuditLog(), f, *count, *follow)
	}
	return c
}

// printAudit prints the requests in an audit log: of those that are there the last most ones, and new ones if follow is true.
func printAudit(ctx context.Context, path string, f *auditFilter, most int, follow bool) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := &logPrinter{out: bufio.NewWriter(os.Stdout), most: most}
	line := func(text string) error {
		if shown, ok := f.show(text); ok {
			return p.line(shown)
		}
		return nil
	}
	err := readFormer(path, f.since, line)
	switch {
	case err != nil:
	case follow:
		err = logs.Follow(ctx, path, &logs.Filter{}, line, p.caughtUp)
	default:
		if err = logs.Read(path, &logs.Filter{}, line); err == nil {
			err = p.caughtUp()
		}
		if _, statErr := os.Stat(path); err == nil {
			err = statErr
		}
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: the audit log is for root only, put sudo before the command", err)
	case errors.Is(err, syscall.EPIPE): // the reader has closed its end, as head does
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no audit log in %s: this machine is no server, has not run with this data directory, or runs with --audit=false", filepath.Dir(path))
	}
	return err
}

// readFormer reads the files that kube-apiserver has put aside, the oldest first. Their names have the time, in UTC, until which they were written.
func readFormer(path string, since time.Time, line func(string) error) error {
	base := strings.TrimSuffix(path, ".log")
	files, err := filepath.Glob(base + "-*.log*")
	if err != nil {
		return err
	}
	slices.Sort(files)
	for _, file := range files {
		stamp, _, _ := strings.Cut(strings.TrimPrefix(file, base+"-"), ".log")
		if until, err := time.Parse("2006-01-02T15-04-05.000", stamp); err == nil && until.Before(since) {
			continue
		}
		if strings.HasSuffix(file, ".gz") && slices.Contains(files, strings.TrimSuffix(file, ".gz")) {
			continue // it is being compressed
		}
		if err := readOne(file, line); err != nil && !errors.Is(err, fs.ErrNotExist) { // it was removed, or compressed, meanwhile
			return err
		}
	}
	return nil
}

func readOne(file string, line func(string) error) error {
	in, err := atomicfile.Open(file) // the directory is the control plane's
	if err != nil {
		return err
	}
	defer in.Close()
	var text io.Reader = in
	if strings.HasSuffix(file, ".gz") {
		if text, err = gzip.NewReader(in); err != nil {
			tellDamage(file, err)
			return nil
		}
	}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		if err := line(lines.Text()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		tellDamage(file, err)
	}
	return nil
}

// tellDamage says that a file could not be read to its end: it is compressed without a sync, so the power may have gone meanwhile.
func tellDamage(file string, err error) {
	fmt.Fprintf(os.Stderr, "%s is damaged, the rest of it is left out: %v\n", file, err)
}

// longestLine limits a line in bytes.
const longestLine = 4 << 20
