package helmcharts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"helm.sh/helm/v4/pkg/action"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
)

// TrialProgram is the name under which this executable must call Trial.
const TrialProgram = "helm-trial"

// What a trial may take. A release has to fit in a Secret of 1 MiB, packed, so what needs more cannot become one.
const (
	trialMemory = 256 << 20 // besides what the process has when it begins
	trialStack  = 64 << 20
	trialCPU    = 60 // seconds
	trialTime   = 2 * time.Minute
	trialOutput = 16 << 20
)

// Exit codes of a process that took too much.
const (
	fatal   = 2 // Go's, when the stack or the memory is full
	tooMuch = 3 // output
)

// trial is what the process for it gets on its standard input: there are secrets in it, and who may see processes sees
// their arguments and environment.
type trial struct {
	Kubeconfig string
	Chart      *chart
	With       overrides
	Values     map[string]any
	Archive    []byte
	Step       step
}

// prove loads a chart after another process has rendered it. Helm has no limit for templates, and nothing catches what
// a full stack or memory does to a process; this one has the API server in it.
func (c *controller) prove(ctx context.Context, ch *chart, w wish, step step, archive []byte) (*chartv2.Chart, error) {
	select {
	case c.clients.reading <- struct{}{}:
		defer func() { <-c.clients.reading }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to render the chart: %w", ctx.Err())
	}
	if err := (trial{c.Kubeconfig, ch, w.with, w.values, archive, step}).run(ctx); err != nil {
		if errors.As(err, new(problem)) {
			ch.Status.Attempted = w.hash // it stays so until somebody changes something
		}
		return nil, err
	}
	packed, err := load(archive)
	if err != nil {
		return nil, problem{reasonNotFetched, err}
	}
	return packed, nil
}

// run starts the process, and returns a problem if rendering takes too much. Whoever kills the process may do so because
// the machine is short of memory or slow, and not for the chart: that is another error. Other mistakes are found when
// it is done in earnest.
func (t trial) run(ctx context.Context) error {
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encoding what is to be rendered: %w", err)
	}
	runtime.LockOSThread() // the kernel sends the death signal when the thread ends that forked
	defer runtime.UnlockOSThread()
	limited, enough := context.WithTimeout(ctx, trialTime)
	defer enough()
	cmd := exec.CommandContext(limited, "/proc/self/exe")
	cmd.Args = []string{TrialProgram}
	cmd.Stdin = bytes.NewReader(data)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case limited.Err() != nil: // its own or that of ctx
		return fmt.Errorf("rendering the chart within %s: %w", trialTime, limited.Err())
	case errors.As(err, &ended) && (ended.ExitCode() == fatal || ended.ExitCode() == tooMuch ||
		ended.UserTime()+ended.SystemTime() > (trialCPU-1)*time.Second):
		return problem{reasonTooLarge, fmt.Errorf("rendering took more than %d MiB of memory, %d s of processor time or %d MiB of output",
			trialMemory>>20, trialCPU, trialOutput>>20)}
	}
	return fmt.Errorf("rendering the chart in a process of its own: %w", err)
}

// Trial renders the chart that it reads from in, writing nothing to the cluster. The process is not good for anything
// else afterwards. It returns its exit code, which is 0 unless the chart takes too much; or the process does not
// live so long.
func Trial(in io.Reader) (code int) {
	defer func() {
		if recover() != nil { // the same panic is told by who does it in earnest
			code = 0
		}
	}()
	var t trial
	if err := json.NewDecoder(in).Decode(&t); err != nil {
		return 0
	}
	confine()
	if t.render() > trialOutput {
		return tooMuch
	}
	return 0
}

// confine limits this process. What cannot be limited is not: without limits charts worked, too.
func confine() {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	debug.SetMaxStack(trialStack)
	debug.SetMemoryLimit(trialMemory * 3 / 4) // collects garbage rather than die of it
	_ = unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: trialCPU, Max: trialCPU})
	if has := dataSize(); has > 0 { // address space would be wrong: Go reserves much that it does not use
		_ = unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: has + trialMemory, Max: has + trialMemory})
	}
}

// dataSize is how much memory this process has that RLIMIT_DATA counts; 0 if that is not known.
func dataSize() uint64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident, shared, text, library, data uint64
	if _, err := fmt.Fscan(strings.NewReader(string(statm)), &size, &resident, &shared, &text, &library, &data); err != nil {
		return 0
	}
	return data * uint64(os.Getpagesize())
}

// render returns how many bytes the chart's objects are as text.
func (t trial) render() int {
	packed, err := load(t.Archive)
	if err != nil {
		return 0
	}
	clients, err := connect(context.Background(), t.Kubeconfig)
	if err != nil {
		return 0
	}
	r, err := clients.newRelease(context.Background(), t.Chart, t.With)
	if err != nil {
		return 0
	}
	var out any
	if t.Step == upgrade {
		u := r.upgrader("", false)
		u.DryRunStrategy = action.DryRunServer
		out, _ = u.Run(t.Chart.Name, packed, t.Values)
	} else {
		i := r.installer("")
		i.DryRunStrategy = action.DryRunServer
		out, _ = i.Run(packed, t.Values)
	}
	made, ok := out.(*releasev1.Release)
	if !ok || made == nil {
		return 0
	}
	size := len(made.Manifest)
	for _, h := range made.Hooks {
		size += len(h.Manifest)
	}
	return size
}
