package listening

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// batch is a message about sockets; their descriptors come with it, in its order.
type batch struct {
	Sockets []key  `json:"sockets"`
	More    bool   `json:"more"` // another batch follows
	Secret  []byte `json:"secret,omitempty"`
}

// mostInBatch is less than the kernel's limit of 253 descriptors, and a batch is smaller than maxBatch bytes.
const (
	mostInBatch = 100
	maxBatch    = 64 << 10
)

// Send sends all sockets to another process, which then has them too.
func (s *Sockets) Send(to *net.UnixConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []key
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	add := func(k key, c interface{ File() (*os.File, error) }) error {
		f, err := c.File()
		if err != nil {
			return fmt.Errorf("handing over the socket of %s %s: %w", k.Network, k.Address, err)
		}
		keys, files = append(keys, k), append(files, f)
		return nil
	}
	var errs []error
	for k, one := range s.streams {
		errs = append(errs, add(k, one.listener))
	}
	for k, one := range s.packets {
		errs = append(errs, add(k, one.conn))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for first := 0; ; first += mostInBatch {
		last := min(first+mostInBatch, len(keys))
		if err := send(to, batch{keys[first:last], last < len(keys), s.secret[:]}, files[first:last]); err != nil {
			return err
		}
		if last == len(keys) {
			return nil
		}
	}
}

func send(to *net.UnixConn, b batch, files []*os.File) error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		if err := raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) }); err != nil { // not with Fd, which makes the socket a blocking one, also for this process
			return err
		}
	}
	if _, _, err := to.WriteMsgUnix(data, unix.UnixRights(fds...), nil); err != nil {
		return fmt.Errorf("handing over sockets: %w", err)
	}
	return nil
}

// Receive returns the sockets that another process sends. Connections wait in them until Settle, which closes those without a user.
func Receive(from *net.UnixConn) (*Sockets, error) {
	s := inherit()
	for more := true; more; {
		b, files, err := receive(from)
		if err == nil {
			copy(s.secret[:], b.Secret) // a process of an earlier version sends none
			err = s.take(b, files)
		}
		for _, f := range files {
			f.Close() // each has a duplicate by now
		}
		if err != nil {
			s.Settle()
			return nil, fmt.Errorf("taking over sockets: %w", err)
		}
		more = b.More
	}
	return s, nil
}

// take takes the sockets of a batch.
func (s *Sockets) take(b batch, files []*os.File) error {
	if len(files) != len(b.Sockets) {
		return fmt.Errorf("%d descriptors came for %d sockets", len(files), len(b.Sockets))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range b.Sockets {
		if l, err := net.FileListener(files[i]); err == nil {
			if tcp, ok := l.(*net.TCPListener); ok {
				s.add(k, tcp)
				continue
			}
			l.Close()
			return net.UnknownNetworkError(k.Network)
		}
		c, err := net.FilePacketConn(files[i])
		if err != nil {
			return err
		}
		udp, ok := c.(*net.UDPConn)
		if !ok {
			c.Close()
			return net.UnknownNetworkError(k.Network)
		}
		s.addPackets(k, udp)
	}
	return nil
}

func receive(from *net.UnixConn) (b batch, files []*os.File, err error) {
	data, control := make([]byte, maxBatch), make([]byte, unix.CmsgSpace(4*mostInBatch))
	n, cn, _, _, err := from.ReadMsgUnix(data, control)
	if err != nil {
		return b, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:cn])
	if err != nil {
		return b, nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // of another kind
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "socket"))
		}
	}
	if n == 0 {
		return b, files, io.ErrUnexpectedEOF
	}
	return b, files, json.Unmarshal(data[:n], &b)
}
