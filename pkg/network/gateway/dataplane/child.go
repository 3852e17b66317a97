// Package dataplane is the gateway's process: it serves what the control plane has left for it, with Caddy as a library. It has no credential
// of the cluster, runs as a user of its own whose only privilege is to listen on ports below 1024, and sees no file besides its own.
package dataplane

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/confine"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/logs"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// maxDescriptors bounds the connections that clients can open, and with them the memory.
const maxDescriptors = 65536

// RunChild serves until SIGTERM, and returns the exit code. The arguments are the directory with the gateway's files and the settings of the log.
func RunChild(args []string) int {
	if err := runChild(args); err != nil {
		logrus.WithError(err).Error("the gateway's process")
		return 1
	}
	return 0
}

func runChild(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: coracle-core %s DIRECTORY LOG", gateway.Program)
	}
	dir, front := gateway.Dir(args[0]), os.Getppid()
	var settings config.Log
	if err := json.Unmarshal([]byte(args[1]), &settings); err != nil {
		return fmt.Errorf("reading the settings of the log: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // the front, which reads the log, may end before this process does
	logs.Setup(settings)
	notify := kube.SetupProcess(kube.GCDefault)
	_ = os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true") // the kernel's usual buffer will do
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)  // rather than the node and the pods that do not fill its memory
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err == nil {
		most := min(now.Max, maxDescriptors)
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most})
	}
	time.Now().Zone()                                // reads the time zone, which is outside
	if _, err := x509.SystemCertPool(); err != nil { // as are the authorities for certificates of backends
		logrus.WithError(err).Warn("the gateway has no authorities for the certificates of backends besides those that are given to it")
	}
	if err := dir.EndOldest(); err != nil {
		logrus.WithError(err).Warn("ending the oldest processes of the gateway that were replaced")
	}
	sockets, before := takeOver(dir)
	control, err := listen(dir)
	if err != nil {
		return err
	}
	defer control.Close()
	if err := os.Chdir(string(dir.Files())); err != nil { // where it stays if its root directory cannot be changed
		return err
	}
	if missing := confined(dir).Enter(); missing != nil {
		logrus.WithField("missing", missing).Info("the gateway has more privileges than it needs: this machine or container does not let it give them up")
	}
	s, err := newServing(".", sockets)
	if err != nil {
		return err
	}
	if _, err := s.apply(); err != nil {
		return err
	}
	if os.Getppid() != front { // since it has been confined it does not end with the front, whose successor starts another one
		return errors.New("the front ended before the gateway served")
	}
	sockets.Settle()
	replaced := make(chan struct{})
	before.relieve()
	s.http3.Begin()
	debug.FreeOSMemory() // what the packages of Kubernetes in this executable took at the start
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+gateway.ApplyPath, s.serveApply)
	mux.HandleFunc("GET "+gateway.AlivePath, func(http.ResponseWriter, *http.Request) {})
	mux.Handle("GET "+gateway.MetricsPath, s.requests.handler())
	mux.HandleFunc("POST "+handoverPath, s.serveHandover(sync.OnceFunc(func() { close(replaced) })))
	api := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute, ErrorLog: zap.NewStdLog(zap.NewNop())}
	go func() { _ = api.Serve(control) }()
	notify.Ready()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.stop()
		case <-replaced:
			control.Close()
			return s.drain(ctx)
		case <-alive.C:
			s.lookAgain(notify)
		}
	}
}

// lookAgain gives a sign of life, and tries ports again that another program has.
func (s *serving) lookAgain(notify kube.Notifier) {
	if !s.mu.TryLock() { // it applies something, or hangs
		return
	}
	waiting := len(s.applied.Refused) > 0
	s.mu.Unlock()
	notify.Alive()
	s.http3.Retry()
	giveBack()
	if waiting {
		_, _ = s.apply()
	}
}

// mostFree is how much memory without use, in bytes, this process keeps. The kernel gets the rest back, which a load that is over has left.
const mostFree = 2 << 20

// giveBack returns memory to the kernel.
func giveBack() {
	free := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(free)
	if free[0].Value.Uint64()+free[1].Value.Uint64() > mostFree {
		debug.FreeOSMemory()
	}
}

// aliveEvery is the time between two signs of life to the supervisor.
const aliveEvery = 10 * time.Second

// confined is what the process may do. The capability is for ports below 1024.
func confined(dir gateway.Dir) confine.Confinement {
	return confine.Confinement{ID: gateway.UserID, Root: string(dir.Files()), Syscalls: confine.NameServer(), Keep: []int{unix.CAP_NET_BIND_SERVICE}, Outlives: true}
}

// listen listens for the control plane, while this process is still root's, where the front puts the socket in place when this process is ready.
func listen(dir gateway.Dir) (net.Listener, error) {
	_ = os.Remove(dir.NextSocket())
	mask := unix.Umask(0o177)
	defer unix.Umask(mask)
	l, err := net.Listen("unix", dir.NextSocket())
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // its name is another's by then
	}
	if err != nil {
		return nil, fmt.Errorf("listening to the control plane: %w", err)
	}
	var owner unix.Stat_t
	if err = unix.Stat(string(dir.Files()), &owner); err == nil {
		err = os.Chown(dir.NextSocket(), int(owner.Uid), -1)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("listening to the control plane: %w", err)
	}
	return l, nil
}
