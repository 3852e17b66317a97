package balance

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
)

// The canary's connection is noticed to be dead by the kernel, three seconds after the server's machine has vanished.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}

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
			pause(ctx, eagerPause)
			continue
		}
		strikes++
		if strikes < 2 && !final(err) {
			continue
		}
		b.judge(s, err)
		pause(ctx, b.Interval)
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
	for _, e := range []error{syscall.ECONNREFUSED, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
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

// rest waits on a connection on which nothing is expected. It returns nil when the time is over, and an error when
// the connection is.
func rest(conn net.Conn, reader *bufio.Reader, d time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	_, err := reader.Peek(1)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case errors.Is(err, syscall.ETIMEDOUT):
		return err
	}
	return errEnded
}
