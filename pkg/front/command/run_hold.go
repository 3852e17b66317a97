package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// Lines that a program may write to the standard input of a run without a command.
const (
	passedLine   = "passed"   // nothing went wrong: no artifacts
	snapshotLine = "snapshot" // take a snapshot, remove the cluster, and keep the snapshot until standard input ends
)

// access is how a program reaches the cluster of a run without a command.
type access struct {
	Name       string            `json:"name"`
	Version    string            `json:"version"` // of coracle
	Kubeconfig string            `json:"kubeconfig"`
	Server     string            `json:"server"`  // URL of the API
	Machine    string            `json:"machine"` // address of this machine that nodes and pods reach
	Nodes      []nodeAccess      `json:"nodes"`
	Env        map[string]string `json:"env"` // for programs that use the cluster
}

type nodeAccess struct {
	Name string `json:"name"`
	Role string `json:"role"`
	IP   string `json:"ip"`
}

// readLines passes on the lines of standard input. Its end while the cluster is being made ends that.
func readLines(signals *interrupts) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for from := bufio.NewScanner(os.Stdin); from.Scan(); {
			lines <- from.Text()
		}
		signals.inputEnded()
	}()
	return lines
}

// hold prints how to reach the cluster and returns when standard input ends, or a signal comes, with the exit code.
func (t *trial) hold(dir localcluster.CommandDir) (code int, err error) {
	signal.Ignore(syscall.SIGPIPE) // the program may be gone that reads what this process prints
	asked := make(chan os.Signal, 1)
	missed := t.signals.give(func(s os.Signal) {
		select {
		case asked <- s:
		default:
		}
	})
	defer t.signals.give(nil)
	if missed != nil || t.signals.ctx.Err() != nil {
		return 0, context.Cause(t.signals.ctx)
	}
	r := t.session.Record
	a := access{Name: r.Name, Version: r.Version, Kubeconfig: dir.Kubeconfig(), Server: "https://" + r.API().String(), Machine: r.Machine().String(), Env: variables(dir)}
	a.Env["PATH"] = os.Getenv("PATH")
	for _, n := range r.Nodes {
		a.Nodes = append(a.Nodes, nodeAccess{n.Name, n.Role, n.IP.String()})
	}
	t.ran = true
	t.say(fmt.Sprintf("ready after %.1f s, until standard input ends", time.Since(t.began).Seconds()))
	if err := a.print(os.Stdout, t.output); err != nil {
		return 0, fmt.Errorf("printing how to reach the cluster: %w", err)
	}
	for {
		select {
		case s := <-asked:
			number, _ := s.(syscall.Signal)
			return runSignalBase + int(number), nil
		case line, ok := <-t.lines:
			if !ok {
				return 0, nil
			}
			if err := t.obey(line); err != nil {
				return 0, err
			}
		}
	}
}

// print writes NAME=value lines and an empty one, or one line of JSON.
func (a access) print(to io.Writer, format string) error {
	if format == "json" {
		return json.NewEncoder(to).Encode(a)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Env)) {
		if _, err := fmt.Fprintf(to, "%s=%s\n", name, a.Env[name]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(to)
	return err
}

// obey does what a line of standard input says.
func (t *trial) obey(line string) error {
	switch line {
	case passedLine:
		t.passed = true
	case snapshotLine:
		one, err := t.session.Snapshot(t.signals.ctx)
		if err != nil {
			return err
		}
		t.passed = true // the cluster is gone, with what could be collected
		return json.NewEncoder(os.Stdout).Encode(map[string]string{"snapshot": one.Name})
	default:
		return errors.New("standard input has a line that is neither " + passedLine + " nor " + snapshotLine)
	}
	return nil
}
