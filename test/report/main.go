// Command report runs `go test -json` with the given arguments and prints a summary: the output of failed tests, one
// line for every test that starts machines, Go's own line for every package, the skipped tests with the reason, and the
// 20 slowest tests. It fails if a test fails, if a test needs much longer than its row in test/slots/budget.txt, or if
// CI is true and a test is skipped that skips.txt does not list.
//
// Usage: report FILE ARGUMENT...
//
// FILE gets the events of go test, one JSON object per line.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/coracle-dev/coracle/test/slots"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: report FILE ARGUMENT...")
		os.Exit(2)
	}
	code, err := run(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// run runs go test and returns the exit code of this command.
func run(path string, args []string) (code int, err error) {
	rows, err := slots.Budget()
	if err != nil {
		return 0, err
	}
	allowed, err := allowedSkips()
	if err != nil {
		return 0, err
	}
	r := newReport(os.Stdout, rows)
	if text := os.Getenv(toleranceEnv); text != "" {
		if r.tolerance, err = strconv.Atoi(text); err != nil {
			return 0, fmt.Errorf("%s: %w", toleranceEnv, err)
		}
	}
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	if err := r.read(bufio.NewReader(io.TeeReader(out, file))); err != nil {
		return 0, err
	}
	err = cmd.Wait()
	good := r.finish(allowed, os.Getenv("CI") == "true")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	if err == nil && !good {
		return 1, nil
	}
	return 0, err
}
