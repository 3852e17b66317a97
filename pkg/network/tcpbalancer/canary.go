package tcpbalancer

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/sockets"
)

// keepAlive makes the kernel test an idle connection of a canary every second.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}

// A live machine acknowledges data at once, and then every keep-alive. When one of these is lost (suspicion), a probe is sent, whose data TCP sends again
// several times until maxSilence: a network that loses some packets is no dead machine.
const (
	suspicion  = 1250 * time.Millisecond
	maxSilence = 2250 * time.Millisecond
)

// errVanished is the error for a machine that does not acknowledge data. A frozen server differs: its kernel acknowledges.
var errVanished = errors.New("its machine does not answer")

// errUnready is the error for a server that answers /readyz with a failure.
var errUnready = errors.New("/readyz says")

// watch is a canary: it probes a server in intervals while needsCanary. Between probes it notices at once when its connection ends.
func (b *Balancer) watch(ctx context.Context, s *server) {
	strikes := 0
	for b.keepWatching(s) {
		answered, err := b.observe(ctx, s)
		if answered {
			strikes = 0 // only those in a row count
		}
		switch {
		case ctx.Err() != nil || err == nil:
			continue // keepWatching decides
		case errors.Is(err, errEnded):
			strikes = 0 // the server may have been restarted; the next connection shows
			_ = lifecycle.Sleep(ctx, eagerPause)
			continue
		}
		strikes++
		if strikes < 2 && !conclusive(err) {
			continue
		}
		b.setHealth(s, err)
		_ = lifecycle.Sleep(ctx, b.Interval)
	}
}

// keepWatching reports whether the canary is still needed, and notes it in watched.
func (b *Balancer) keepWatching(s *server) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.watched = b.needsCanary(s)
	return s.watched
}

// conclusive reports whether one such error is enough to mark a server unhealthy.
func conclusive(err error) bool {
	enough := []error{errVanished, syscall.ECONNREFUSED, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH}
	return slices.ContainsFunc(enough, func(e error) bool { return errors.Is(err, e) })
}

// errEnded is the error for a connection that was closed between two probes.
var errEnded = errors.New("the connection has ended")

// observe probes a server over one connection. It returns whether the server has answered, and no error when the canary is not needed any more.
func (b *Balancer) observe(ctx context.Context, s *server) (answered bool, err error) {
	conn, err := b.dialCanary(ctx, s)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	reader := bufio.NewReader(conn)
	for {
		if err := probe(conn, reader, s.address, b.Answer); err != nil {
			return answered, err
		}
		answered = true
		b.setHealth(s, nil)
		if err := awaitNext(conn, reader, b.Interval); err != nil {
			return answered, err
		}
		b.mu.Lock()
		wanted := b.needsCanary(s)
		b.mu.Unlock()
		if !wanted {
			return answered, nil
		}
	}
}

func (b *Balancer) dialCanary(ctx context.Context, s *server) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Answer)
	defer cancel()
	conn, err := (&net.Dialer{KeepAliveConfig: keepAlive, Control: sockets.ControlOften}).DialContext(ctx, "tcp", s.dial)
	if err != nil || b.tls == nil {
		return conn, err
	}
	config, err := b.tls()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return secure, nil
}

// probe requests /readyz once. Only a status of 500 or more is unhealthy: a refusal for lack of permission is an answer, too.
func probe(conn net.Conn, reader *bufio.Reader, host string, timeout time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET /readyz HTTP/1.1\r\nHost: %s\r\nUser-Agent: coracle-balancer\r\n\r\n", host); err != nil {
		return err
	}
	err := awaitData(conn, reader, timeout, maxSilence)
	if errors.Is(err, os.ErrDeadlineExceeded) && silence(conn) >= timeout*3/4 { // several retransmissions were lost, too
		return errVanished
	}
	if err != nil {
		return err
	}
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)); err != nil {
		return err
	}
	if response.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("%w %s", errUnready, response.Status)
	}
	return nil
}

// awaitData waits for data, at most for d, and leaves the end of d as the deadline. It returns errVanished as soon as the machine has
// been silent for so long, and looks when that can be the case at the earliest.
func awaitData(conn net.Conn, reader *bufio.Reader, d, silent time.Duration) error {
	end := time.Now().Add(d)
	for {
		look := min(silent-silence(conn), time.Until(end))
		if err := conn.SetDeadline(time.Now().Add(look)); err != nil {
			return err
		}
		switch _, err := reader.Peek(1); {
		case err == nil:
			return conn.SetDeadline(end)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case silence(conn) >= silent:
			return errVanished
		case !time.Now().Before(end):
			return err
		}
	}
}

// awaitNext waits for d on an idle connection, or until the machine is suspiciously silent: the next probe shows what is the matter. It returns an
// error if the connection ends.
func awaitNext(conn net.Conn, reader *bufio.Reader, d time.Duration) error {
	switch err := awaitData(conn, reader, d, suspicion); {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, errVanished):
		return nil
	case conclusive(err):
		return err
	}
	return errEnded
}

// silence is the time since the kernel last received a packet of the connection.
func silence(conn net.Conn) time.Duration {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0
	}
	var info *unix.TCPInfo
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	}
	if info == nil {
		return 0
	}
	return time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond
}
