package supportbundle

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/process"
	"github.com/coracle-dev/coracle/pkg/diagnose/redact"
)

// Processes lists all processes of the machine, without their environments and without secrets in their arguments.
func Processes(r *redact.Redactor) func(context.Context, *Files) error {
	return func(ctx context.Context, to *Files) error {
		dirs, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return fmt.Errorf("listing processes: %w", err)
		}
		var out bytes.Buffer
		fmt.Fprintf(&out, "%7s %7s %5s %5s %1s %7s %9s %9s  %s\n", "PID", "PPID", "UID", "OOM", "S", "THREADS", "RSS_KB", "ANON_KB", "CGROUP  COMMAND")
		for _, dir := range dirs {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if line, ok := describe(dir, r); ok {
				out.WriteString(line)
			}
		}
		to.Add("", out.Bytes())
		return nil
	}
}

// describe describes a process in one line. ok is false if it has ended meanwhile.
func describe(dir string, r *redact.Redactor) (line string, ok bool) {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return "", false
	}
	field := func(name string) string {
		_, rest, _ := strings.Cut("\n"+string(status), "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\n")
		word, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		word, _, _ = strings.Cut(word, "\t")
		return word
	}
	argv, _ := os.ReadFile(dir + "/cmdline") // a kernel thread has none
	command := "[" + field("Name") + "]"
	if len(argv) > 0 {
		args := strings.Split(strings.TrimRight(string(argv), "\x00"), "\x00")
		for i, arg := range r.Args(args) {
			args[i] = shortened(arg)
		}
		command = strings.Join(args, " ")
	}
	score, _ := os.ReadFile(dir + "/oom_score_adj")
	return fmt.Sprintf("%7s %7s %5s %5s %1s %7s %9s %9s  %s  %s\n", filepath.Base(dir), field("PPid"), field("Uid"),
		strings.TrimSpace(string(score)), field("State"), field("Threads"), field("VmRSS"), field("RssAnon"), cgroup(dir), command), true
}

// shortened returns an argument on one line, and cuts it off if it is long, such as a script.
func shortened(arg string) string {
	const most = 300
	if len(arg) > most {
		arg = arg[:most] + "..."
	}
	if strings.ContainsAny(arg, "\n\r\t ") || arg == "" {
		return strconv.Quote(arg)
	}
	return arg
}

// cgroup returns the cgroup of a process in the memory hierarchy, or in the unified one if there is no memory hierarchy.
func cgroup(dir string) string {
	data, _ := os.ReadFile(dir + "/cgroup") // "" if it has ended
	best := "-"
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && (parts[1] == "" && best == "-" || strings.Contains(","+parts[1]+",", ",memory,")) {
			best = parts[2]
		}
	}
	return best
}

// Blocked lists the threads of the machine that wait uninterruptibly, as for a disk or a network file system, with their
// kernel stacks.
func Blocked(ctx context.Context, to *Files) error {
	tasks, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	if err != nil {
		return fmt.Errorf("listing threads: %w", err)
	}
	var out bytes.Buffer
	for _, task := range tasks {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if thread, err := process.Read(task); err == nil && thread.State == 'D' {
			stack, _ := os.ReadFile(task + "/stack") // not every kernel has it
			fmt.Fprintf(&out, "%s (%s)\n%s\n", task, thread.Name, stack)
		}
	}
	if out.Len() == 0 {
		out.WriteString("no thread is blocked\n")
	}
	to.Add("", out.Bytes())
	return nil
}
