package helm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
)

// TrialProgram is the name under which this executable must call Trial.
const TrialProgram = "helm-trial"

// limits are what a trial may take.
type limits struct {
	Memory int // bytes, besides what the process has when it begins
	CPU    int // seconds
	Output int // bytes
	Time   time.Duration
}

// ample is for all charts. A release has to fit in a Secret of 1 MiB, packed, so what needs more cannot become one.
var ample = limits{256 << 20, 60, 16 << 20, 2 * time.Minute}

// Exit codes of a trial.
const (
	fatal    = 2 // Go's, when the stack or the memory is full, and for much else
	tooMuch  = 3 // output or processor time
	unproven = 4 // nothing was rendered, and that is not the chart's fault
)

// errUnproven is the same as an error.
var errUnproven = errors.New("the process that renders charts could not begin, most likely because it did not reach the API")

// trial is what the process for it gets on its standard input: there are secrets in it, and who may see processes sees
// their arguments and environment.
type trial struct {
	Kubeconfig string
	Chart      *chart
	With       overrides
	Values     exact
	Archive    []byte
	Step       step
	Most       limits
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
	if err := (trial{c.Kubeconfig, ch, w.with, w.values, archive, step, ample}).run(ctx); err != nil {
		ch.Status.Attempted = "" // so it is tried again
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
// the machine is short of memory or slow, and not for the chart: that is another error, as is a process that could not do
// its work. Other mistakes are found when it is done in earnest.
func (t trial) run(ctx context.Context) error {
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encoding what is to be rendered: %w", err)
	}
	runtime.LockOSThread() // the kernel sends the death signal when the thread ends that forked
	defer runtime.UnlockOSThread()
	limited, enough := context.WithTimeout(ctx, t.Most.Time)
	defer enough()
	var said beginning
	cmd := exec.CommandContext(limited, "/proc/self/exe")
	cmd.Args = []string{TrialProgram}
	cmd.Stdin, cmd.Stderr = bytes.NewReader(data), &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case limited.Err() != nil: // its own or that of ctx
		return fmt.Errorf("rendering the chart within %s: %w", t.Most.Time, limited.Err())
	case !errors.As(err, &ended):
	case ended.ExitCode() == unproven:
		return errUnproven
	case ended.ExitCode() == fatal && !tookAll(said.fatal(), rationed()):
		return fmt.Errorf("rendering the chart in a process of its own: %w: %s", err, cmp.Or(said.fatal(), "a mistake in Helm or coracle"))
	case ended.ExitCode() == fatal, ended.ExitCode() == tooMuch,
		ended.UserTime()+ended.SystemTime() > time.Duration(t.Most.CPU)*time.Second:
		return problem{reasonTooLarge, fmt.Errorf("rendering took more than %d MiB of memory, %d s of processor time or %d MiB of output",
			t.Most.Memory>>20, t.Most.CPU, t.Most.Output>>20)}
	}
	return fmt.Errorf("rendering the chart in a process of its own: %w", err)
}
