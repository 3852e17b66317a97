package helm

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// request describes one action for the child process. It is sent to the child's standard input because it contains
// secrets; arguments and environment are visible in /proc.
type request struct {
	Chart     *chart
	Overrides overrides // the HelmChart's, with the HelmChartConfig's over them
	Values    map[string]any
	Archive   []byte // the packed chart; for install, upgrade and reinstall
	Hash      string
	Step      step
	// Newest is the number of the release's newest revision, 0 if there is none.
	Newest int
	// RollbackTo is the revision to return to if an upgrade fails; 0 if it is not to be rolled back.
	RollbackTo int
	Limits     renderLimits
}

// message is one line of the child's standard output: a log entry, that the chart is rendered, or the result.
type message struct {
	Level    string         `json:"level,omitempty"`
	Msg      string         `json:"msg,omitempty"`
	Rendered *renderedChart `json:",omitempty"`
	Result   *result        `json:",omitempty"`
}

// renderedChart names a chart that is rendered and about to be applied.
type renderedChart struct{ Name, Version string }

// result is the outcome of an action.
type result struct {
	// Error is empty if the action succeeded. Reason and Conflict describe it.
	Error, Reason string
	Conflict      bool // the API server refused a write because of a conflict
	// Begun reports that a revision was made for the request's hash, whether it failed or not.
	Begun bool
	// Revision, ChartVersion and AppVersion describe the newest revision, unless the action failed.
	Revision                 int
	ChartVersion, AppVersion string
}

// err is the error with the types that the controller tells apart.
func (r result) err() error {
	err := errors.New(r.Error)
	switch {
	case r.Error == "":
		return nil
	case r.Reason != "":
		err = problem{r.Reason, err}
	case r.Conflict:
		err = &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonConflict, Message: r.Error}}
	}
	return err
}

// runChild carries out a request in a child process, which ends at the latest when ctx does. The child reaches the API
// only through this process, so it cannot write anything after ctx is done, even if it is not killed yet. rendered is
// called when the chart is rendered, before any of its objects is written; an error of it ends the child.
func (c *controller) runChild(ctx context.Context, r request, rendered func(renderedChart) error) (result, error) {
	input, err := json.Marshal(r)
	if err != nil {
		return result{}, fmt.Errorf("encoding the request to the child process: %w", err)
	}
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	clients, err := c.as(ctx, r.Chart)
	if err != nil {
		return result{}, err
	}
	api, err := c.serveAPI(ctx, clients)
	if err != nil {
		return result{}, err
	}
	runtime.LockOSThread() // PDEATHSIG is sent when the thread ends that started the child
	defer runtime.UnlockOSThread()
	var stderr firstBytes
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args, cmd.ExtraFiles = []string{ChildProgram}, []*os.File{api}
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	api.Close()
	if err != nil {
		return result{}, fmt.Errorf("starting the child process for the chart: %w", err)
	}
	rendering := len(r.Archive) > 0
	outcome, err := c.listen(stdout, nameOf(r.Chart).String(), func(chart renderedChart) {
		rendering = false
		if err := rendered(chart); err != nil {
			kill(err)
		}
	})
	if err != nil {
		kill(err)
	}
	switch err := cmd.Wait(); {
	case outcome != nil:
		return *outcome, outcome.err()
	case ctx.Err() != nil:
		return result{}, fmt.Errorf("applying the chart: %w", context.Cause(ctx))
	default:
		return result{}, r.Limits.explain(err, stderr.fatalError(), rendering)
	}
}

// The size of the child's messages in bytes: a text in a message is cut at maxText, and a message of more than maxMessage
// ends the child.
const (
	maxText    = 64 << 10
	maxMessage = 1 << 20
)

// listen reads the child's messages until it ends. The outcome is nil if there was no result.
func (c *controller) listen(stdout io.Reader, chart string, rendered func(renderedChart)) (outcome *result, err error) {
	messages := bufio.NewScanner(stdout)
	messages.Buffer(nil, maxMessage)
	for messages.Scan() {
		var m message
		if err := json.Unmarshal(messages.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("reading a message of the child process: %w", err)
		}
		switch {
		case m.Rendered != nil:
			rendered(*m.Rendered)
		case m.Result != nil:
			outcome = m.Result
		default:
			level, _ := logrus.ParseLevel(m.Level)
			c.log.WithField("chart", chart).Log(max(level, logrus.ErrorLevel), m.Msg)
		}
	}
	if err := messages.Err(); err != nil {
		return nil, fmt.Errorf("reading the messages of the child process: %w", err)
	}
	return outcome, nil
}

// serveAPI forwards requests from the returned socket to the API server until ctx is done, as the user of the clients: the
// child cannot name another one. The caller closes the socket.
func (c *controller) serveAPI(ctx context.Context, as *clients) (*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket for the child process: %w", err)
	}
	own, child := os.NewFile(uintptr(pair[0]), "own end"), os.NewFile(uintptr(pair[1]), "child's end")
	defer own.Close()
	conn, err := net.FileConn(own)
	if err != nil {
		child.Close()
		return nil, fmt.Errorf("making a socket for the child process: %w", err)
	}
	quiet := zap.NewStdLog(zap.NewNop()) // the child ends at any moment, and reports errors itself
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(as.server)
			maps.DeleteFunc(r.Out.Header, func(name string, _ []string) bool { // client-go adds its own only if there are none
				return name == "Authorization" || strings.HasPrefix(name, "Impersonate-")
			})
		},
		Transport:     as.transport,
		FlushInterval: -1, // watches
		ErrorLog:      quiet,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway) // Helm's error names the cause
		},
	}
	go (&http2.Server{MaxConcurrentStreams: maxStreams}).ServeConn(conn, &http2.ServeConnOpts{
		Context: ctx, Handler: proxy, BaseConfig: &http.Server{ErrorLog: quiet},
	})
	context.AfterFunc(ctx, func() { conn.Close() })
	return child, nil
}

// maxStreams is how many requests a child may have open at once. Helm watches each kind of each namespace of a chart.
const maxStreams = 10000

// explain is the error of a child that ended without a result. It is a problem of the chart only if it exceeded a limit
// before the chart was rendered: limits apply only until then. A child that was killed says nothing about the chart:
// the machine may be short of memory.
func (l renderLimits) explain(err error, fatal string, rendering bool) error {
	var ended *exec.ExitError
	switch {
	case !errors.As(err, &ended), !rendering:
	case ended.ExitCode() == exitLimit,
		ended.ExitCode() == exitFatal && exhausted(fatal, overcommitDenied()),
		ended.UserTime()+ended.SystemTime() > time.Duration(l.CPU)*time.Second:
		return problem{reasonTooLarge, l.exceeded()}
	}
	return fmt.Errorf("applying the chart in a child process: %w: %s", err, cmp.Or(fatal, "a bug in Helm or coracle"))
}

// exceeded names the limits.
func (l renderLimits) exceeded() error {
	return fmt.Errorf("rendering took more than %d MiB of memory, %d s of processor time or %d MiB of output",
		l.Memory>>20, l.CPU, l.Output>>20)
}
