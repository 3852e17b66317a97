package helm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"

	"github.com/sirupsen/logrus"
	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
	helmkube "helm.sh/helm/v4/pkg/kube"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// ChildProgram is the name under which this executable must call RunChild.
const ChildProgram = "helm-action"

// Exit codes of a child that ends without a result.
const (
	exitFatal = 2 // Go's, when the stack or the memory is exhausted, and for every other fatal error
	exitLimit = 3 // too much processor time
	exitUsage = 4 // this process is not a child of the controller
)

// apiDescriptor is the file descriptor of the connection to the API, over which HTTP/2 is spoken without TLS.
const apiDescriptor = 3

// RunChild carries out one action of Helm in this process, which is good for nothing else afterwards, and returns the
// exit code. The request is read from standard input; messages are written to standard output.
func RunChild([]string) int {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // rather than the API server
	out := os.Stdout
	silenceStderr()
	logrus.SetOutput(out)
	logrus.SetFormatter(messageFormatter{})
	helmkube.ManagedFieldsManager = "helm" // as Helm's own command is called; the default is this process' name
	spent, done := make(chan os.Signal, 1), make(chan int, 1)
	signal.Notify(spent, unix.SIGXCPU)
	go func() { done <- serveRequest(os.Stdin, out) }()
	select {
	case code := <-done:
		return code
	case <-spent:
		return exitLimit
	}
}

// silenceStderr leaves standard error to fatal errors of Go's runtime, because libraries may print values of a chart.
func silenceStderr() {
	os.Stderr, _ = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	klog.CopyStandardLogTo("INFO")
}

// messageFormatter formats log entries as messages.
type messageFormatter struct{}

// Format implements logrus.Formatter.
func (messageFormatter) Format(e *logrus.Entry) ([]byte, error) {
	line, err := json.Marshal(message{Level: e.Level.String(), Msg: cut(e.Message, maxText)})
	return append(line, '\n'), err
}

// serveRequest carries out the request from in and writes messages to out.
func serveRequest(in io.Reader, out io.Writer) (code int) {
	var r request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return exitUsage
	}
	clients, err := connectToParent(os.NewFile(apiDescriptor, "API"))
	if err != nil {
		return exitUsage
	}
	messages := json.NewEncoder(out)
	res := r.run(context.Background(), clients, func(chart renderedChart) { _ = messages.Encode(message{Rendered: &chart}) })
	res.Error = cut(res.Error, maxText)
	if err := messages.Encode(message{Result: &res}); err != nil {
		return exitUsage
	}
	return 0
}

// connectToParent makes clients that reach the API through the parent process. It closes the file.
func connectToParent(file *os.File) (*clients, error) {
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API through the parent process: %w", err)
	}
	transport, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(conn)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API through the parent process: %w", err)
	}
	return newClients(&rest.Config{Host: "http://kubernetes", Transport: transport})
}
