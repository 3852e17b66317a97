// Package conformance runs Kubernetes' conformance tests in a cluster: the image that the release has for it, in a pod with all rights.
package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-dev/coracle/pkg/diagnose/conformance/results"
)

// Repository has the image of each release of Kubernetes.
const Repository = "registry.k8s.io/conformance"

// Limits of how long the command waits.
const (
	callTimeout   = 30 * time.Second // for an answer of the API
	patience      = 10 * time.Minute // for an API that does not answer while the tests run
	denyPatience  = time.Minute      // for an API that has forgotten, while it starts, what the user may do
	placePatience = 2 * time.Minute  // for the pod to be scheduled, and then for its node to say something of it
	pullPatience  = 12 * time.Second // while the image cannot be pulled: the first try can fail by chance
	poll          = time.Second
)

// Options says which tests are run, and what is done with them.
type Options struct {
	// Image is the image with the tests; "" is the one of the cluster's version.
	Image       string
	Focus, Skip string // regular expressions
	Parallel    int    // tests at once
	DryRun      bool   // list the tests only
	Keep        bool   // leave in the cluster what was made
	Output      string // directory of the results
}

// Runner runs the tests in the cluster of Config. Out gets their log and the summary, Notes what the command does.
type Runner struct {
	Options
	Config     *rest.Config
	Out, Notes io.Writer

	api     kubernetes.Interface                                      // for calls, which have a timeout
	streams kubernetes.Interface                                      // for logs
	read    func(ctx context.Context, name string, to *bounded) error // copies a file of the results
	run     results.Run

	podUID, bindingUID, namespaceUID types.UID // of what was made; others can make the same names
}

// Connect returns a Runner for a cluster.
func Connect(config *rest.Config, o Options, out, notes io.Writer) (*Runner, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.UserAgent = -1, "coracle"
	calls := rest.CopyConfig(config)
	calls.Timeout = callTimeout
	api, err := kubernetes.NewForConfig(calls)
	if err != nil {
		return nil, err
	}
	streams, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	o.Focus = cmp.Or(o.Focus, results.CertifiedFocus) // as the image does
	r := &Runner{Options: o, Config: config, Out: out, Notes: notes, api: api, streams: streams}
	r.read = r.readByExec
	return r, nil
}

// Run runs the tests, and packs the results. It returns an error unless all tests that ran have passed. What it made in the cluster is
// removed, whatever happens and also when ctx is done or nobody reads Out or Notes any more, except results that could not be saved.
func (r *Runner) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.Out, r.Notes = audience{r.Out, cancel}, audience{r.Notes, cancel}
	if err := r.check(ctx); err != nil {
		return err
	}
	if err := r.makeNamespace(ctx); err != nil {
		return err
	}
	defer func() { err = r.end(ctx, err) }()
	if err := r.run.Prepare(r.Output); err != nil { // now, because results of a run that is under way stay
		return err
	}
	if err := r.makePod(ctx); err != nil {
		return err
	}
	if err := r.awaitStart(ctx); err != nil {
		return err
	}
	code, err := r.follow(ctx)
	if err != nil {
		return err
	}
	return r.finish(ctx, code)
}

// end removes what the run has made, unless it is to be kept.
func (r *Runner) end(ctx context.Context, err error) error {
	whole := context.WithoutCancel(ctx)
	switch lost := (unsaved{}); {
	case r.Keep:
		r.note("kept in the cluster: %s. Remove it with coracle conformance --cleanup", made)
		return err
	case ctx.Err() != nil:
		err = fmt.Errorf("it was interrupted: %w", context.Cause(ctx))
	case errors.As(err, &lost):
		r.note("the pod has the only copy of the results, and is kept until %s. kubectl -n %s exec %s -c %s -- cat %s/%s >%s "+
			"gets one of the files, the other is %s. Then remove the pod with coracle conformance --cleanup", r.run.Began.Add(longest).UTC().Format(time.RFC3339),
			namespace, podName, keeper, resultsDir, results.Log, results.Log, results.JUnit)
		return errors.Join(err, r.gone(whole, r.rights())) // the tests have ended
	}
	return errors.Join(err, r.remove(whole))
}

// audience is a writer, and ends the run when nobody reads it any more.
type audience struct {
	io.Writer
	end context.CancelCauseFunc
}

// Write implements io.Writer.
func (a audience) Write(p []byte) (int, error) {
	n, err := a.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		a.end(errors.New("nobody reads its output any more"))
	}
	return n, err
}

// finish takes the results out of the pod and reports them.
func (r *Runner) finish(ctx context.Context, code int32) error {
	r.run.Code = code
	if err := r.fetch(ctx); err != nil {
		return fmt.Errorf("the tests ended with code %d, and their results are not complete: %w", code, err)
	}
	s, err := r.summarize()
	if err != nil {
		return err
	}
	archive, missing, err := r.run.Pack(r.Output, s)
	if err != nil {
		return err
	}
	r.report(s, archive, missing)
	switch {
	case s.Failed > 0:
		return fmt.Errorf("%d of %d tests failed", s.Failed, s.Failed+s.Passed)
	case s.Passed == 0:
		return errors.New("no test ran: --focus and --skip select none")
	case code != 0:
		return fmt.Errorf("no test failed, but the run ended with code %d: see %s in %s", code, results.Log, r.run.Dir(r.Output))
	}
	return nil
}

func (r *Runner) note(format string, args ...any) {
	fmt.Fprintf(r.Notes, "coracle: "+format+"\n", args...)
}
