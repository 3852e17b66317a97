package coracletest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// run is a process of "coracle run" that holds a cluster or a snapshot. It ends when its standard input does, so also with this process.
type run struct {
	access access
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *tail
	engine *engine // nil if the cluster is on this machine

	once  sync.Once
	ended error
}

// access is what coracle run prints about its cluster.
type access struct {
	Name       string            `json:"name"`
	Kubeconfig string            `json:"kubeconfig"`
	Server     string            `json:"server"`
	Machine    string            `json:"machine"` // address of this machine that nodes and pods reach
	Nodes      []Node            `json:"nodes"`
	Env        map[string]string `json:"env"`
}

// stopTimeout is the longest time in which coracle run removes a cluster and writes artifacts. A later one is killed, and its cluster is removed by
// the cluster's own processes.
const stopTimeout = 2 * time.Minute

// startRun starts coracle run and returns when its cluster can be used.
func startRun(ctx context.Context, o Options) (*run, error) {
	program, err := executable(ctx, o.Executable)
	if err != nil {
		return nil, err
	}
	if o, err = o.absolute(); err != nil {
		return nil, err
	}
	r := &run{stderr: &tail{}}
	if needsEngine() {
		r.engine, err = newEngine(ctx, program, o)
		if err != nil {
			return nil, err
		}
		r.cmd = r.engine.command(o)
	} else {
		r.cmd = exec.Command(program, o.arguments()...)
	}
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	if r.engine != nil {
		if err := r.engine.adopt(ctx, &r.access); err != nil {
			return nil, errors.Join(err, r.stop(false))
		}
	}
	return r, nil
}

// absolute returns the options with absolute paths.
func (o Options) absolute() (Options, error) {
	o.Images, o.Manifests = slices.Clone(o.Images), slices.Clone(o.Manifests) // parallel tests share options
	paths := []*string{&o.Config, &o.Artifacts}
	for _, list := range [][]string{o.Images, o.Manifests} {
		for i := range list {
			paths = append(paths, &list[i])
		}
	}
	for _, path := range paths {
		if *path == "" {
			continue
		}
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return o, err
		}
	}
	return o, nil
}

// arguments are those of coracle run.
func (o Options) arguments() []string {
	args := []string{"run", "--quiet", "--output", "json"}
	for _, f := range []struct{ name, value string }{
		{"nodes", positive(o.Nodes)}, {"servers", positive(o.Servers)}, {"config", o.Config}, {"artifacts", o.Artifacts},
	} {
		if f.value != "" {
			args = append(args, "--"+f.name+"="+f.value)
		}
	}
	if o.From != nil {
		args = append(args, "--from="+o.From.snapshot)
	}
	if o.Wait > 0 {
		args = append(args, "--wait="+o.Wait.String())
	}
	if o.Rollout {
		args = append(args, "--rollout")
	}
	for _, path := range o.Images {
		args = append(args, "--image="+path)
	}
	for _, path := range o.Manifests {
		args = append(args, "--manifest="+path)
	}
	return args
}

func positive(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// start starts the process and reads how to reach its cluster.
func (r *run) start(ctx context.Context) error {
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	r.stdout, r.cmd.Stderr = bufio.NewReader(stdout), r.stderr
	if err := r.cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.stdin.Close() })
	defer stop()
	if err := r.read(&r.access); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// read reads a line of JSON. If there is none, the process has failed, and the error is what it said.
func (r *run) read(to any) error {
	line, err := r.stdout.ReadBytes('\n')
	if err == nil {
		return json.Unmarshal(line, to)
	}
	if err = r.stop(false); err == nil {
		err = errors.New("it ended")
	}
	return fmt.Errorf("coracle run: %w", err)
}

// stop ends the process, which removes its cluster, and waits for it.
func (r *run) stop(passed bool) error {
	r.once.Do(func() {
		if passed {
			_, _ = io.WriteString(r.stdin, "passed\n") // if it has ended, Wait says why
		}
		_ = r.stdin.Close()
		timer := time.AfterFunc(stopTimeout, func() { _ = r.cmd.Process.Kill() })
		defer timer.Stop()
		_, _ = io.Copy(io.Discard, r.stdout)
		r.ended = r.cmd.Wait()
		if text := r.stderr.String(); r.ended != nil && text != "" {
			r.ended = fmt.Errorf("%w: %s", r.ended, text)
		}
		if r.engine != nil {
			r.engine.close()
		}
	})
	return r.ended
}

// tail keeps the end of what a process prints.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// tailSize is the number of bytes that a tail keeps.
const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ReplaceAll(string(bytes.TrimSpace(t.text)), "coracle: ", ""))
}
