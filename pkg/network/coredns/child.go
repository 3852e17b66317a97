package coredns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"
	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/confine"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/logs"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
)

// maxDescriptors bounds the connections that clients can open, and with them the memory, of which each takes some 10 KiB.
const maxDescriptors = 16384

// RunChild is the name server's process. It serves what its parent sends it, until the parent closes the connection or ends, and returns
// the exit code.
func RunChild([]string) int {
	_ = os.WriteFile("/proc/self/comm", []byte(Program), 0)        // for ps; otherwise it would be exe
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0) // rather than the pods that do not fill its memory, and the parent
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err == nil {
		most := min(now.Max, maxDescriptors)
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most})
	}
	if err := runChild(); err != nil {
		logrus.WithField("component", "dns").WithError(err).Error("the name server's process")
		return 1
	}
	return 0
}

func runChild() error {
	control, err := inherited(controlDescriptor)
	if err != nil {
		return err
	}
	apiConn, err := inherited(apiDescriptor)
	if err != nil {
		return err
	}
	api, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(apiConn)
	if err != nil {
		return fmt.Errorf("connecting to the API through the parent: %w", err)
	}
	if err := register(api); err != nil {
		return err
	}
	c := &child{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathConfine, c.confine)
	mux.HandleFunc("POST "+pathCorefile, c.load)
	mux.Handle("GET "+pathMetrics, promhttp.Handler())
	serveConn(context.Background(), control, mux)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server.stop()
}

// inherited returns the connection that the parent has passed.
func inherited(descriptor uintptr) (net.Conn, error) {
	file := os.NewFile(descriptor, "inherited")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("connecting to the parent: %w", err)
	}
	return conn, nil
}

// serveConn serves HTTP/2 on one connection until it is closed.
func serveConn(ctx context.Context, conn net.Conn, handler http.Handler) {
	(&http2.Server{}).ServeConn(conn, &http2.ServeConnOpts{Context: ctx, Handler: handler, BaseConfig: &http.Server{ErrorLog: zap.NewStdLog(zap.NewNop())}})
}

// child is the name server's process.
type child struct {
	mu       sync.Mutex
	confined bool
	server   server
}

// confine is called before any Corefile is read.
func (c *child) confine(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var request confineRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || c.confined {
		http.Error(w, "not a first request", http.StatusBadRequest)
		return
	}
	c.confined = true
	logs.Setup(request.Log)
	kube.SetupProcess(kube.GCDefault)
	time.Now().Zone() // reads the time zone, which is outside
	err := confine.Confinement{ID: clusterdns.UserID, Root: request.Root, Syscalls: confine.NameServer()}.Enter()
	if err != nil {
		_, _ = io.WriteString(w, err.Error())
	}
}

func (c *child) load(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.confined {
		http.Error(w, "not confined yet", http.StatusBadRequest)
		return
	}
	corefile, err := io.ReadAll(r.Body)
	if err == nil {
		err = c.server.load(corefile)
		debug.FreeOSMemory()
	}
	switch {
	case errors.Is(err, errNotSynced):
		w.WriteHeader(http.StatusServiceUnavailable)
	case err != nil:
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, err.Error())
	}
}
