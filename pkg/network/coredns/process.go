package coredns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Program is the name under which this executable must call RunChild.
const Program = "coracle-dns"

// The child's descriptors. Over the first it is an HTTP/2 server for its parent, over the second a client of the API.
const (
	controlDescriptor = 3
	apiDescriptor     = 4
)

// The paths of the child's server.
const (
	pathConfine  = "/confine"  // POST: takes a confineRequest, and answers with what is missing
	pathCorefile = "/corefile" // POST: takes a rendered Corefile
	pathMetrics  = "/metrics"  // GET
)

// confineRequest is the first request to the child.
type confineRequest struct {
	Root string     `json:"root"` // its directory
	Log  config.Log `json:"log"`
}

// process is the child process that serves, which the parent, with its privileges, never does.
type process struct {
	pid     int
	started time.Time
	control *http2.ClientConn
	ended   chan struct{}
	how     string // it ended; valid when ended is closed
	missing string // of its confinement
	cancel  context.CancelFunc
}

// startProcess starts the child and has it confine itself. api serves its requests to the API.
func startProcess(root string, log config.Log, api http.Handler) (*process, error) {
	control, childControl, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer childControl.Close()
	apiConn, childAPI, err := socketPair()
	if err != nil {
		control.Close()
		return nil, err
	}
	defer childAPI.Close()
	p := &process{started: time.Now(), ended: make(chan struct{})}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	context.AfterFunc(ctx, func() { control.Close(); apiConn.Close() })

	started := make(chan error, 1)
	go p.run(childControl, childAPI, started)
	err = <-started
	if err == nil {
		p.control, err = (&http2.Transport{AllowHTTP: true}).NewClientConn(control)
	}
	if err == nil {
		err = p.confine(confineRequest{Root: root, Log: log})
	}
	if err != nil {
		p.cancel()
		return nil, fmt.Errorf("starting the name server's process: %w", err)
	}
	// Only now that the child has started, which takes a slow machine long: http2's server closes a connection on which nothing comes within 10 s.
	go serveConn(ctx, apiConn, api)
	return p, nil
}

// run starts the child, and returns when it has ended. It keeps its thread: the kernel kills a child whose thread of birth ends.
func (p *process) run(control, api *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := func(flags uintptr) (*exec.Cmd, error) {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args, cmd.ExtraFiles = []string{Program}, []*os.File{control, api}
		cmd.Env = []string{startGC} // a Corefile can name variables: none of this process's
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: flags}
		return cmd, cmd.Start()
	}
	cmd, err := start(unix.CLONE_NEWNS)
	if errors.Is(err, unix.EPERM) { // in some containers; the child reports it
		cmd, err = start(0)
	}
	if err == nil {
		p.pid = cmd.Process.Pid
	}
	started <- err
	if err != nil {
		return
	}
	_ = cmd.Wait()
	p.how = cmd.ProcessState.String()
	p.cancel()
	close(p.ended)
}

// startGC has garbage collected while packages are initialized, which coracle-core does not do by itself: what they leave, most of which the child does
// not use, then takes 14 MB for good instead of 17. At 10 it would take 0.1 MB less, and half as much processor time again.
const startGC = "GOGC=40"

// socketPair returns the parent's and the child's end of a connection.
func socketPair() (net.Conn, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket for the name server's process: %w", err)
	}
	own, child := os.NewFile(uintptr(pair[0]), "own end"), os.NewFile(uintptr(pair[1]), "child's end")
	defer own.Close()
	conn, err := net.FileConn(own)
	if err != nil {
		child.Close()
		return nil, nil, fmt.Errorf("making a socket for the name server's process: %w", err)
	}
	return conn, child, nil
}

// alive reports whether the child runs.
func (p *process) alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// end returns the channel that is closed when the child ends; nil without a child.
func (p *process) end() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.ended
}

// hangs reports whether the child does not answer for some time.
func (p *process) hangs(ctx context.Context, patience time.Duration) bool {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return errors.Is(p.control.Ping(waiting), context.DeadlineExceeded) && ctx.Err() == nil
}

// kill ends the child at once.
func (p *process) kill() {
	if p.alive() { // else its number may be another process's
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
}

// requestTimeout bounds a request to the child. A load waits for the cluster's names, see reloadSync.
const requestTimeout = time.Minute

// request returns the answer's body. An answer other than 200 is an error with the body as its text.
func (p *process) request(method, path string, body []byte) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://dns"+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	answer, err := p.control.RoundTrip(r)
	var text []byte
	if err == nil {
		defer answer.Body.Close()
		text, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	}
	switch {
	case err != nil && !p.alive():
		return nil, nil, fmt.Errorf("the name server's process ended: %s", p.how)
	case err != nil:
		return nil, nil, fmt.Errorf("asking the name server's process: %w", err)
	case answer.StatusCode == http.StatusServiceUnavailable:
		return nil, nil, errNotSynced
	case answer.StatusCode != http.StatusOK:
		return nil, nil, errors.New(string(text))
	}
	return answer, text, nil
}

// maxAnswer is the length in bytes at which an answer of the child is cut.
const maxAnswer = 16 << 20

func (p *process) confine(r confineRequest) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, text, err := p.request(http.MethodPost, pathConfine, body)
	p.missing = string(text)
	return err
}

// load serves a rendered Corefile, or changes nothing and returns an error.
func (p *process) load(corefile []byte) error {
	_, _, err := p.request(http.MethodPost, pathCorefile, corefile)
	return err
}

// gather returns the child's metrics.
func (p *process) gather() ([]*dto.MetricFamily, error) {
	answer, text, err := p.request(http.MethodGet, pathMetrics, nil)
	if err != nil {
		return nil, err
	}
	return kube.DecodeMetrics(answer.Header, bytes.NewReader(text))
}

// stop waits until the child has answered the queries in flight, for a limited time. The child reaches the API until it has ended: its
// watches would fail otherwise, and it would log that.
func (p *process) stop() {
	if p == nil {
		return
	}
	p.control.Close()
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		p.kill()
		<-p.ended
	}
}

// stopTimeout is longer than CoreDNS waits for queries, which is 5 s by default.
const stopTimeout = 7 * time.Second
