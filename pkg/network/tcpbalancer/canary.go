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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// The canary's connection is noticed to be dead by the kernel, three seconds after it last heard from the server's
// machine. While a question is on its way the kernel is more patient, so we look ourselves.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}

const (
	// A machine that is there answers every keep-alive, so that there is never more silence than this.
	silent = 1500 * time.Millisecond
	// vanished is the silence after which the machine of a server that was asked something is gone.
	vanished = 2 * time.Second
	// glance is how often we look while we wait.
	glance = 250 * time.Millisecond
)

// errVanished is a machine that does not even acknowledge that it was asked.
var errVanished = errors.New("its machine does not answer")

// unwellError is a server that answers and says that it is not ready.
type unwellError struct{ status string }

func (e *unwellError) Error() string { return "/readyz says " + e.status }

// watch asks a server in intervals for as long as that is wanted. Its connection is a canary too: while it waits for
// the next question it notices at once when the connection ends.
func (b *Balancer) watch(ctx context.Context, s *server) {
	strikes := 0
	for b.goOn(s) {
		err := b.observe(ctx, s)
		switch {
		case ctx.Err() != nil || err == nil:
			continue // goOn says why
		case errors.Is(err, errEnded):
			strikes = 0 // it may have been restarted: the next connection tells
			_ = lifecycle.Sleep(ctx, eagerPause)
			continue
		}
		strikes++
		if strikes < 2 && !final(err) {
			continue
		}
		b.judge(s, err)
		_ = lifecycle.Sleep(ctx, b.Interval)
	}
}

// goOn reports whether a canary has more to do; if not, it is taken off the list.
func (b *Balancer) goOn(s *server) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.watched = b.wanted(s)
	return s.watched
}

// final reports whether an error needs no second opinion.
func final(err error) bool {
	for _, e := range []error{errVanished, syscall.ECONNREFUSED, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// errEnded is a connection that was closed between two questions.
var errEnded = errors.New("the connection has ended")

// observe keeps one connection to a server and asks it in intervals. It returns nil when that is not wanted any more.
func (b *Balancer) observe(ctx context.Context, s *server) error {
	conn, err := b.dialCanary(ctx, s)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	reader := bufio.NewReader(conn)
	for {
		if err := ask(conn, reader, s.address, b.Answer); err != nil {
			return err
		}
		b.judge(s, nil)
		if err := rest(conn, reader, b.Interval); err != nil {
			return err
		}
		b.mu.Lock()
		wanted := b.wanted(s)
		b.mu.Unlock()
		if !wanted {
			return nil
		}
	}
}

func (b *Balancer) dialCanary(ctx context.Context, s *server) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Answer)
	defer cancel()
	conn, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", s.dial)
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

// ask asks once. Whoever answers but with a failure of its own is not well; that it does not want to tell us is well.
func ask(conn net.Conn, reader *bufio.Reader, host string, timeout time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET /readyz HTTP/1.1\r\nHost: %s\r\nUser-Agent: coracle-balancer\r\n\r\n", host); err != nil {
		return err
	}
	if err := begun(conn, reader, timeout); err != nil {
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
		return &unwellError{response.Status}
	}
	return nil
}

// begun waits until an answer begins.
func begun(conn net.Conn, reader *bufio.Reader, timeout time.Duration) error {
	end := time.Now().Add(timeout)
	for {
		if err := conn.SetReadDeadline(earlier(end, time.Now().Add(glance))); err != nil {
			return err
		}
		_, err := reader.Peek(1)
		switch {
		case err == nil:
			return conn.SetDeadline(end)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case silence(conn) >= vanished:
			return errVanished
		case !time.Now().Before(end):
			return err
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// rest waits on a connection on which nothing is expected. It returns nil when the time is over, and an error when
// the connection is. It goes on while the kernel waits for a sign of life, for it knows first.
func rest(conn net.Conn, reader *bufio.Reader, d time.Duration) error {
	for {
		if err := conn.SetDeadline(time.Now().Add(d)); err != nil {
			return err
		}
		_, err := reader.Peek(1)
		switch s := silence(conn); {
		case errors.Is(err, syscall.ETIMEDOUT):
			return err
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return errEnded
		case s < silent:
			return nil
		case s > 2*vanished:
			return errVanished
		}
		d = glance
	}
}

// silence is for how long the kernel has not heard from the other machine.
func silence(conn net.Conn) time.Duration {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	var info *unix.TCPInfo
	err = raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err != nil || info == nil {
		return 0
	}
	return time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond
}
