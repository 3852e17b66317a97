package faults

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/process"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/hosts"
)

// crowdSize is how many connections are opened to each port.
const crowdSize = 10_000

// openPorts are the ports of a server that listen towards the network: the API, with joining and tunnels, the kubelet, and etcd's members.
var openPorts = []uint16{6443, 10250, 2380}

// idleConnections: a stranger opens many connections to each port of a server. A third of them says nothing, a third stops in the middle of the first
// message of a TLS handshake, and a third after it. Others reach these ports meanwhile, and afterwards the processes are as they were.
func idleConnections(a *arena) []*hosts.Host {
	h := a.Servers[a.random.IntN(len(a.Servers))]
	other := a.others(h)[0]
	before := a.usage(h)
	stranger := hosts.New(a.t, a.Wire, "stranger", hosts.Options{})
	hello := clientHello(a)
	var crowds []*crowd
	var opening sync.WaitGroup
	for _, port := range openPorts {
		c := &crowd{address: netip.AddrPortFrom(h.IP, port), hello: hello}
		crowds = append(crowds, c)
		opening.Go(func() {
			if err := c.open(stranger); err != nil {
				a.t.Errorf("connecting to %s: %v", c.address, err)
			}
		})
	}
	opening.Wait()
	for _, c := range crowds {
		if took, err := handshake(other, c.address.String()); err != nil || took > 5*readyLimit() {
			a.t.Errorf("another host's TLS handshake at %s took %s: %v", c.address, took, err)
		}
		err := c.forgetClosed()
		a.t.Logf("of %d connections to %s %d were opened, %d are open; %v", crowdSize, c.address, c.opened, len(c.left), err)
		if c.opened < crowdSize*9/10 {
			a.t.Errorf("only %d connections to %s were opened", c.opened, c.address)
		}
	}
	most := a.usage(h)
	for _, c := range crowds {
		c.close()
	}
	a.t.Logf("%s: before %v, with the connections %v", h.Name, before, most)
	for name, u := range most {
		if more := u.files - before[name].files; more > moreFiles {
			a.t.Errorf("the %s of %s has %d descriptors more than before", name, h.Name, more)
		}
		if more := u.memory - before[name].memory; more > moreMemory {
			a.t.Errorf("the %s of %s has %d MB more than before", name, h.Name, more>>20)
		}
	}
	a.await("the connections are closed", func() (err error) {
		after := a.usage(h)
		for name, u := range after {
			if more := u.files - before[name].files; more > someFiles {
				err = errors.Join(err, fmt.Errorf("the %s of %s has %d descriptors more than before", name, h.Name, more))
			}
		}
		if err == nil {
			a.t.Logf("%s: afterwards %v", h.Name, after)
		}
		return err
	})
	return nil
}

// What a process may need more while strangers keep connections to it: those to the kubelet are limited to a thousand for each address.
const (
	moreFiles  = 1500
	moreMemory = 80 << 20
	someFiles  = 100 // come and go with the load
)

// usage is what a process uses.
type usage struct {
	files  int
	memory int           // bytes that are its own
	worked time.Duration // since its start
}

func (u usage) String() string {
	return fmt.Sprintf("%d descriptors, %d MB and %s of a processor", u.files, u.memory>>20, short(u.worked))
}

// usage returns what the processes of coracle on a host use, by name.
func (a *arena) usage(h *hosts.Host) map[string]usage {
	a.t.Helper()
	out := map[string]usage{}
	for _, p := range a.Running(h).Processes() {
		if p.Name != state.ControlPlane && p.Name != state.Node {
			continue
		}
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
		if err != nil {
			a.t.Fatal(err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
		if err != nil {
			a.t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "RssAnon:")
		kb, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			a.t.Fatal(err)
		}
		stat, err := process.Find(p.PID)
		if err != nil {
			a.t.Fatal(err)
		}
		out[p.Name] = usage{len(files), kb << 10, stat.CPU}
	}
	return out
}

// crowd are connections to one address. They are plain descriptors: with a goroutine for each, the test would need more of the processors than the servers.
type crowd struct {
	address netip.AddrPort
	hello   []byte
	opened  int
	left    []unix.PollFd // those that the server has not closed
}

// atOnce is how many connections are opened at the same time.
const atOnce = 50

// open opens connections from a host, slowly.
func (c *crowd) open(from *hosts.Host) error {
	return hosts.On(from.PID(), func() error {
		ticker := time.NewTicker(badly * atOnce / crowdSize)
		defer ticker.Stop()
		for range crowdSize / atOnce {
			<-ticker.C
			if err := c.connect(); err != nil {
				return err
			}
		}
		return nil
	})
}

// connect opens some connections, and forgets those that were closed.
func (c *crowd) connect() error {
	var all []unix.PollFd
	for range atOnce {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: c.address.Addr().As4(), Port: int(c.address.Port())}); !errors.Is(err, unix.EINPROGRESS) {
			return err
		}
		all = append(all, unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT})
	}
	for deadline := time.Now().Add(5 * time.Second); len(all) > 0 && time.Now().Before(deadline); {
		_, err := unix.Poll(all, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		all = slices.DeleteFunc(all, func(p unix.PollFd) bool {
			if p.Revents != 0 {
				c.opened++
				_, _ = unix.Write(int(p.Fd), c.hello[:len(c.hello)*(c.opened%3)/2])
				c.left = append(c.left, unix.PollFd{Fd: p.Fd, Events: unix.POLLRDHUP})
			}
			return p.Revents != 0
		})
	}
	for _, p := range all { // they could not connect
		_ = unix.Close(int(p.Fd))
	}
	return c.forgetClosed()
}

// forgetClosed forgets the connections that the server has closed.
func (c *crowd) forgetClosed() error {
	if _, err := unix.Poll(c.left, 0); err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	c.left = slices.DeleteFunc(c.left, func(p unix.PollFd) bool {
		if p.Revents != 0 {
			_ = unix.Close(int(p.Fd))
		}
		return p.Revents != 0
	})
	return nil
}

// close closes all connections.
func (c *crowd) close() {
	for _, p := range c.left {
		_ = unix.Close(int(p.Fd))
	}
	c.left = nil
}

// clientHello is the first message of a TLS handshake.
func clientHello(a *arena) []byte {
	a.t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	go func() { _ = tls.Client(ours, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	buf := make([]byte, 16<<10)
	n, err := theirs.Read(buf)
	if err != nil {
		a.t.Fatal(err)
	}
	return buf[:n]
}

// handshake makes a TLS handshake from a host, without a certificate, and returns how long it took.
func handshake(from *hosts.Host, address string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	began := time.Now()
	conn, err := from.Dial(ctx, "tcp", address)
	if err != nil {
		return time.Since(began), err
	}
	defer conn.Close()
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	return time.Since(began), err
}
