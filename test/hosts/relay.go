package hosts

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// cable is what happens to the frames of a host's cable, in both directions.
type cable struct {
	delay     time.Duration
	reorder   int // percent that come up to reorderDelay later, after others
	duplicate int // percent that come twice
}

// reorderDelay is how much later a frame comes at most that others overtake: some round trips later, and before TCP sends it again.
const reorderDelay = 20 * time.Millisecond

// relay replaces a host's cable in the wire's bridge and forwards all frames as a worse one does. It is for kernels without
// sch_netem, such as those of small CI machines.
//
//	host eth0 ── PORT-in ──(relay)── PORT, a tap ── bridge
type relay struct {
	wire  *Wire
	port  string
	ends  [2]*os.File
	group sync.WaitGroup
}

// maxFrame is the largest packet with its header for offloads: the kernel passes on packets that TCP has not segmented
// yet.
const maxFrame = 1<<16 + 64

// newRelay makes the cable of a port another one.
func newRelay(w *Wire, port string, c cable) (*relay, error) {
	r := &relay{wire: w, port: port}
	inner := port + "-in"
	if err := w.try("ip -n %[1]s link set %[2]s nomaster && ip -n %[1]s link set %[2]s name %[3]s", w.name, port, inner); err != nil {
		return nil, err
	}
	if err := r.open(inner); err != nil {
		return nil, errors.Join(err, r.restore())
	}
	if err := w.try("ip -n %s link set %s master br0 up", w.name, port); err != nil {
		r.close()
		return nil, err
	}
	r.group.Go(func() { c.pass(r.ends[0], r.ends[1]) })
	r.group.Go(func() { c.pass(r.ends[1], r.ends[0]) })
	return r, nil
}

// open makes the two ends inside the wire's namespace.
func (r *relay) open(inner string) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked, because the thread is in another namespace
		ns, err := os.Open("/run/netns/" + r.wire.name)
		if err != nil {
			result <- err
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("entering the wire's namespace: %w", err)
			return
		}
		if r.ends[0], err = openTap(r.port); err == nil {
			r.ends[1], err = openPort(inner)
		}
		result <- err
	}()
	return <-result
}

// close puts the host's cable back into the bridge. Packets on their way are lost.
func (r *relay) close() {
	for _, end := range r.ends {
		if end != nil {
			_ = end.Close() // which removes the tap
		}
	}
	r.group.Wait()
	_ = r.restore() // the host may be gone, and its cable with it
}

func (r *relay) restore() error {
	return r.wire.try("ip -n %[1]s link set %[2]s-in name %[2]s && ip -n %[1]s link set %[2]s master br0 up", r.wire.name, r.port)
}

// openTap makes a tap device whose frames have the header for offloads, like those of openPort.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("making the tap %s: %w", name, err)
	}
	offloads := unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("setting the offloads of the tap %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openPort makes a socket for the raw frames of an interface.
func openPort(name string) (*os.File, error) {
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr)
	}
	for _, option := range []int{unix.PACKET_VNET_HDR, unix.PACKET_IGNORE_OUTGOING} {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_PACKET, option, 1)
		}
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: int(ifr.Uint32())})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("taking the frames of %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// frame is a packet with the time when it is forwarded.
type frame struct {
	due  time.Time
	data []byte
}

// pass reads frames and writes each after the delay until an end is closed.
func (c cable) pass(from, to *os.File) {
	queue := make(chan frame, 4096) // a full queue loses packets, like a switch
	go func() {
		defer close(queue)
		buf := make([]byte, maxFrame)
		for {
			n, err := from.Read(buf)
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err != nil || n == 0 {
				time.Sleep(time.Millisecond) // the interface is down for a moment
				continue
			}
			select {
			case queue <- frame{time.Now().Add(c.delay), append([]byte(nil), buf[:n]...)}:
			default:
			}
		}
	}()
	for f := range queue {
		time.Sleep(time.Until(f.due))
		write := func() { _, _ = to.Write(f.data) } // frames that do not fit are lost
		if rand.IntN(100) < c.duplicate {
			write()
		}
		if rand.IntN(100) < c.reorder {
			time.AfterFunc(rand.N(reorderDelay), write)
			continue
		}
		write()
	}
}
