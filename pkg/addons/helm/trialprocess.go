package helm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
	"helm.sh/helm/v4/pkg/action"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// trialStack is how large a goroutine's stack may become in a trial.
const trialStack = 64 << 20

// Trial renders the chart that it reads from in, writing nothing to the cluster. The process is not good for anything
// else afterwards. It returns its exit code, which is 0 if the chart was rendered or cannot be, for reasons of its own; or
// the process does not live so long.
func Trial(in io.Reader) int {
	hush()
	spent, done := make(chan os.Signal, 1), make(chan int, 1)
	signal.Notify(spent, unix.SIGXCPU)
	go func() { done <- attempt(in) }()
	select {
	case code := <-done:
		return code
	case <-spent:
		return tooMuch
	}
}

// attempt is a trial but for the limit of processor time.
func attempt(in io.Reader) (code int) {
	defer func() {
		if recover() != nil { // the same panic is told by who does it in earnest
			code = 0
		}
	}()
	var t trial
	if err := json.NewDecoder(in).Decode(&t); err != nil {
		return unproven
	}
	t.Most.confine()
	size, err := t.render()
	switch {
	case err != nil:
		return unproven
	case size > t.Most.Output:
		return tooMuch
	}
	return 0
}

// hush leaves standard error to Go's own last words. Libraries may say there what is in a chart.
func hush() {
	os.Stderr, _ = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	logrus.SetOutput(io.Discard)
	klog.CopyStandardLogTo("INFO") // which is nowhere now
}

// confine limits this process. What cannot be limited is not: without limits charts worked, too.
func (l limits) confine() {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	debug.SetMaxStack(trialStack)
	debug.SetMemoryLimit(int64(l.Memory) * 3 / 4) // collects garbage rather than die of it
	// The first limit is a signal; at the second, which is for a process that is too busy for it, the kernel kills.
	_ = unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: uint64(l.CPU), Max: uint64(l.CPU) * 2})
	if has := dataSize(); has > 0 { // address space would be wrong: Go reserves much that it does not use
		_ = unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: has + uint64(l.Memory), Max: has + uint64(l.Memory)})
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

// render returns how many bytes the chart's objects are as text. It is an error if they are not rendered for a reason that is
// not the chart's.
func (t trial) render() (size int, err error) {
	packed, err := load(t.Archive)
	if err != nil {
		return 0, nil // the same is told by who loads it in earnest
	}
	clients, err := connect(context.Background(), t.Kubeconfig)
	if err != nil {
		return 0, err
	}
	r, err := clients.newRelease(context.Background(), t.Chart, t.With)
	if err != nil {
		return 0, err
	}
	var out any
	if t.Step == upgrade {
		u := r.upgrader("", false)
		u.DryRunStrategy = action.DryRunServer
		out, err = u.Run(t.Chart.Name, packed, t.Values)
	} else {
		i := r.installer("")
		i.DryRunStrategy = action.DryRunServer
		out, err = i.Run(packed, t.Values)
	}
	if failing(err) {
		return 0, err
	}
	made, ok := out.(*releasev1.Release)
	if !ok || made == nil {
		return 0, nil
	}
	size = len(made.Manifest)
	for _, h := range made.Hooks {
		size += len(h.Manifest)
	}
	return size, nil
}

// failing reports whether an error is one of the API, which would have no answer to anybody now.
func failing(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code == http.StatusUnauthorized || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	return errors.As(err, new(*url.Error))
}
