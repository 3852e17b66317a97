package streams

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxAttempts is the number of endpoints that are tried.
const maxAttempts = 3

var (
	errNoEndpoint = errors.New("no endpoint is ready")
	errItself     = errors.New("the endpoint is this gateway")
)

// dial connects to an endpoint of a backend, or to another one if that does not accept.
func (s *Server) dial(now *state, backend string) (net.Conn, error) {
	var tried []string
	err := errNoEndpoint
	for len(tried) < maxAttempts {
		address := now.table.Next(backend, tried)
		if address == "" {
			break
		}
		tried = append(tried, address)
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		var conn net.Conn
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
		cancel()
		if err == nil && !now.isItself(conn, false) {
			return conn, nil
		}
		if err == nil {
			conn.Close()
			err = errItself
		}
	}
	return nil, err
}

// isItself reports whether a connection leads to a port of this process, around in circles: the address of an endpoint can be what a user
// wrote. A connection to an address of this host has that address at both ends.
func (s *state) isItself(conn net.Conn, udp bool) bool {
	local, remote := addressOf(conn.LocalAddr()), addressOf(conn.RemoteAddr())
	return local.Addr().Unmap() == remote.Addr().Unmap() && s.own[port{remote.Port(), udp}]
}

// copyBoth copies until both ends are done, one fails, or nothing has come for long.
func (s *Server) copyBoth(l *link) {
	l.used.began = time.Now()
	var idle *time.Timer
	idle = time.AfterFunc(s.idle, func() {
		if left := s.idle - l.used.idle(); left > 0 {
			idle.Reset(left)
			return
		}
		l.close(false)
	})
	defer idle.Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.copy(l, l.client, l.backend)
	}()
	s.copy(l, l.backend, l.client)
	<-done
	l.close(true)
}

// copy copies one direction. At its end the other end learns of it, and the other direction goes on.
func (s *Server) copy(l *link, to, from net.Conn) {
	err := s.pump(l, to, from)
	if half, ok := to.(interface{ CloseWrite() error }); err == nil && ok {
		err = half.CloseWrite()
	}
	if err != nil {
		l.close(false)
	}
}

// pump copies until the end, which is no error.
func (s *Server) pump(l *link, to, from net.Conn) error {
	var read func(then func([]byte) error) error
	if tcp, ok := from.(syscall.Conn); ok {
		raw, err := tcp.SyscallConn()
		if err != nil {
			return err
		}
		read = func(then func([]byte) error) error { return readInto(raw, &s.buffers, true, then) }
	} else { // TLS, which has buffers of its own
		buf := make([]byte, 4<<10)
		read = func(then func([]byte) error) error {
			n, err := from.Read(buf)
			if n > 0 {
				if err := then(buf[:n]); err != nil {
					return err
				}
			}
			return err
		}
	}
	for {
		err := read(func(b []byte) error {
			l.used.note()
			_, err := to.Write(b)
			return err
		})
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readInto waits for data, and only then takes a buffer for it: most connections have none for most of the time. A stream can end, where a
// datagram is empty.
func readInto(raw syscall.RawConn, buffers *sync.Pool, ends bool, then func([]byte) error) error {
	var buf *[]byte
	var n int
	var failed error
	err := raw.Read(func(fd uintptr) bool {
		buf = buffers.Get().(*[]byte)
		for {
			if n, failed = unix.Read(int(fd), *buf); failed != unix.EINTR {
				break
			}
		}
		if failed == unix.EAGAIN {
			buffers.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	if buf == nil {
		return err
	}
	defer buffers.Put(buf)
	switch {
	case failed != nil:
		return failed
	case n == 0 && ends:
		return io.EOF
	}
	return then((*buf)[:n])
}
