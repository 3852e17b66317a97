package dataplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/listening"
)

// A process that starts takes the sockets over from the one that serves, over the socket of the control plane's requests: it asks for them, gets
// them, and when it serves says so. Then the other one accepts no more. If it ends before that the other one goes on as if nothing had been.
const (
	handoverPath = "/handover"
	servesNow    = "served\n"
)

// handoverTimeout bounds each step. A process that hangs is killed after it.
const handoverTimeout = 3 * time.Second

// predecessor is the process that served before this one.
type predecessor struct{ conn *net.UnixConn }

// takeOver returns the sockets of the process that serves; none if there is no such process. That is the one at the next socket if the front ended
// when it served and its socket was not in place yet. A process that does not hand over is ended, as is one that serves besides. Only root can do this.
func takeOver(dir gateway.Dir) (sockets *listening.Sockets, before predecessor) {
	for _, name := range []string{dir.Socket(), dir.NextSocket()} {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
		if err != nil {
			continue
		}
		if sockets == nil {
			if sockets, err = receive(conn); err == nil {
				before.conn = conn
				continue
			}
			logrus.WithError(err).Warn("ending the former process of the gateway, which does not hand over")
		}
		if err := endPeer(conn); err != nil {
			logrus.WithError(err).Error("ending the former process of the gateway")
		}
		conn.Close()
	}
	if sockets == nil {
		sockets = listening.New()
	}
	return sockets, before
}

// receive asks a process for its sockets.
func receive(conn *net.UnixConn) (*listening.Sockets, error) {
	_ = conn.SetDeadline(time.Now().Add(handoverTimeout))
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: gateway\r\n\r\n", handoverPath); err != nil {
		return nil, err
	}
	return listening.Receive(conn)
}

// endPeer kills the process that listens at the other end, and waits for its end.
func endPeer(conn *net.UnixConn) error {
	peer, err := peerOf(conn)
	if err != nil {
		return err
	}
	process, err := unix.PidfdOpen(int(peer.Pid), 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(process)
	if err := unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, int(handoverTimeout.Milliseconds()))
	return err
}

// peerOf returns who is at the other end.
func peerOf(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(failed, err)
}

// relieve tells the predecessor that this process serves, and waits until it accepts no more.
func (p predecessor) relieve() {
	if p.conn == nil {
		return
	}
	defer p.conn.Close()
	_ = p.conn.SetDeadline(time.Now().Add(handoverTimeout))
	_, err := p.conn.Write([]byte(servesNow))
	if err == nil {
		_, err = bufio.NewReader(p.conn).ReadString('\n')
	}
	if err != nil {
		logrus.WithError(err).Warn("the former process of the gateway may still accept connections")
	}
}

// serveHandover hands the sockets over to the process that asks, which is root's then. replaced is called when that one serves.
func (s *serving) serveHandover(replaced func()) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer c.Close()
		conn, ok := c.(*net.UnixConn)
		if !ok {
			return
		}
		if peer, err := peerOf(conn); err != nil || peer.Uid != 0 { // the control plane's user may only ask for changes
			return
		}
		_ = conn.SetDeadline(time.Time{})
		if err := s.sockets.Send(conn); err != nil {
			logrus.WithError(err).Warn("the next process of the gateway does not get its sockets")
			return
		}
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != servesNow {
			return // it has ended
		}
		s.draining.Store(true)
		s.http3.Close(http3Grace) // the next process reads the socket when this one has retired
		s.sockets.Retire()
		_, _ = conn.Write([]byte("retired\n"))
		replaced()
	}
}

// How long a process goes on that was replaced: keep-alive connections are closed after a request, or after idleTime, and the process ends
// when no connection is left, or after drainTime.
const (
	idleTime  = 10 * time.Second
	drainTime = time.Hour
)

// drain serves the connections that there are until they end.
func (s *serving) drain(ctx context.Context) error {
	debug.FreeOSMemory()
	s.sockets.Await(ctx, idleTime)
	if err := s.stop(); err != nil { // requests and streams go on
		return err
	}
	debug.FreeOSMemory()
	s.sockets.Await(ctx, drainTime)
	return nil
}
