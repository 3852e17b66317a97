package localcluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
	"github.com/coracle-dev/coracle/pkg/machine/host"
)

// holder is the root of a cluster's processes. It owns what the kernel removes when no process uses it.
type holder struct {
	store Store
	conn  net.Conn // to the process of the Maker
	net   *network
	env   []string

	guarded int    // the process group that ends with the owner of the session; 0 is none
	leader  uint64 // start time of the group's first process, in clock ticks after boot

	snapshotting sync.Mutex // held while a snapshot is taken
	changing     sync.Mutex // held while the record is changed

	mu      sync.Mutex
	record  Record
	members map[string]*member
	enc     *json.Encoder // onto conn
}

// event is sent by the holder to the Maker, one JSON object a line.
type event struct {
	// Node and Text report progress on a node.
	Node string `json:"node,omitempty"`
	Text string `json:"text,omitempty"`
	// NodeReady says that Node is Ready, or lacks only the network of the cluster's OtherNetwork.
	NodeReady    bool `json:"nodeReady,omitempty"`
	OtherNetwork bool `json:"otherNetwork,omitempty"` // see Record
	// Ready says that this is so of all nodes, Error why the cluster failed.
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
}

// detachOrder tells the holder to go on without its Maker.
const detachOrder = "keep"

// holderFD is the file descriptor of the holder's socket to the Maker.
const holderFD = 3

// RunHolder is the main function of the holder: it makes the cluster, reports that on its socket, and holds the cluster until it is
// killed. If the Maker ends before the cluster is handed over, the holder removes the cluster.
func RunHolder(s Store, name string) error {
	conn, err := net.FileConn(os.NewFile(holderFD, "maker"))
	if err != nil {
		return fmt.Errorf("the process that holds a cluster is started by coracle up only: %w", err)
	}
	r, err := s.Load(name)
	if err != nil {
		return err
	}
	h := &holder{store: s, conn: conn, record: r, members: map[string]*member{}, env: nodeEnv(), enc: json.NewEncoder(conn)}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	alone := make(chan error, 1)
	go func() {
		err := h.followMaker()
		if err != nil {
			cancel()
		}
		alone <- err
	}()
	if err := explain(h.make(ctx)); err != nil {
		h.send(event{Error: err.Error()})
		<-alone // the Maker reads the logs before it removes the cluster
		return h.abandon(err)
	}
	if err := h.leaveSession(); err != nil {
		fmt.Fprintln(os.Stderr, "leaving the user's session:", err)
	}
	h.send(event{Ready: true})
	if err := <-alone; err != nil {
		endGroup(h.guarded, h.leader)
		return h.abandon(err)
	}
	select {} // the rest is done by supervise and by the control socket's goroutines
}

// followMaker handles the Maker's orders until it detaches. The error says that it ended without that.
func (h *holder) followMaker() error {
	for lines := bufio.NewScanner(h.conn); lines.Scan(); {
		if lines.Text() == detachOrder {
			return nil
		}
		if group, ok := strings.CutPrefix(lines.Text(), guardOrder); ok {
			h.guarded, _ = strconv.Atoi(group)
			h.leader, _ = state.StartTicks(h.guarded)
		}
	}
	return errors.New("coracle up ended before the cluster was ready")
}

// abandon removes a cluster that did not start. What remains in the kernel ends with this process.
func (h *holder) abandon(why error) error {
	for _, m := range h.members {
		m.host.Kill()
		_ = m.host.Discard() // remove, below, removes or reports the rest
	}
	if h.net != nil && h.net.nft != 0 {
		_ = syscall.Kill(h.net.nft, syscall.SIGKILL)
	}
	for _, mounted := range []string{h.store.executable(h.record.Name), h.store.hosts(h.record.Name)} {
		_ = unix.Unmount(mounted, unix.MNT_DETACH)
	}
	// All processes in the cluster's cgroups are killed next, and this one may be among them.
	if err := nshost.JoinCgroup("", os.Getpid()); err != nil {
		why = errors.Join(why, err)
	}
	_, err := h.store.remove(h.record)
	return errors.Join(why, err)
}

// leaveSession moves the holder out of the cgroup in which it was started, because the cluster outlives the user's session or the
// step of a CI job.
func (h *holder) leaveSession() error {
	var errs []error
	for _, pid := range []int{os.Getpid(), h.net.nft} {
		errs = append(errs, nshost.JoinCgroup(filepath.Join(h.record.Cgroup(), "holder"), pid))
	}
	return errors.Join(errs...)
}

func (h *holder) send(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.enc.Encode(e) // followMaker notices when the connection is closed
}

// change changes the record, in the file too. It reads the file first, because the removal of another cluster may have changed
// UserConfig there. The store's lock keeps that removal from overwriting the change, and the removal of this cluster, which other
// goroutines may be changing, from leaving a record.
func (h *holder) change(f func(*Record)) error {
	h.changing.Lock() // so that goroutines of this process do not poll for the store's lock
	defer h.changing.Unlock()
	unlock, err := h.store.lock(context.Background())
	if err != nil {
		return err
	}
	defer unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.store.Load(h.record.Name)
	if err != nil {
		return err
	}
	f(&r)
	h.record = r
	return h.store.save(r)
}

// make makes the cluster and returns once all nodes are Ready, or lack only the network of its OtherNetwork.
func (h *holder) make(ctx context.Context) error {
	// The holder has its own mount namespace, which must not keep mounts busy that the machine unmounts.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separating the holder's mounts from the machine's: %w", err)
	}
	self, err := describeProcess(os.Getpid())
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return h.change(func(r *Record) { r.Holder = self }) },
		func() error { return host.DelegateCgroups("/sys/fs/cgroup") },
		h.prepare,
		h.makeNetwork,
		func() error { return h.store.sysctls().Hold(ctx, h.store.realRecordFile(h.record.Name), self) },
		func() error { return serveDNS(ctx, h.net.wire, h.record.Wire()) },
		h.restore,
		func() error { return h.eachNode(h.boot) },
		func() error { return h.eachNode(func(n *Node) error { return h.start(ctx, n) }) },
		h.writeKubeconfig,
		func() error { return h.balance(ctx) },
		h.control,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return h.change(func(r *Record) { r.State = Running })
}

// explain adds the fix to an error of a container without the needed privileges.
func explain(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%w; inside a container, coracle up needs all privileges (docker run --privileged)", err)
	}
	return err
}

// eachNode calls do for all nodes in parallel and returns the first error.
func (h *holder) eachNode(do func(*Node) error) error {
	h.mu.Lock()
	nodes := h.record.Nodes
	h.mu.Unlock()
	results := make(chan error, len(nodes))
	for i := range nodes {
		n := nodes[i]
		go func() { results <- do(&n) }()
	}
	for range nodes {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

// setNode changes a node's part of the record.
func (h *holder) setNode(name string, f func(*Node)) error {
	return h.change(func(r *Record) {
		for i := range r.Nodes {
			if r.Nodes[i].Name == name {
				f(&r.Nodes[i])
			}
		}
	})
}

// start runs coracle on a node that is up and waits until the node is Ready, or lacks only the network of another's plug-in: that can be deployed then.
func (h *holder) start(ctx context.Context, n *Node) error {
	m := h.member(n.Name)
	ended := h.coracle(m)
	ready := make(chan error, 1)
	go func() { ready <- h.awaitReady(ctx, m) }()
	select {
	case err := <-ready:
		if err != nil {
			return err
		}
	case err := <-ended:
		return fmt.Errorf("coracle on %s ended: %w", n.Name, err)
	}
	go h.supervise(m, 0, ended)
	other := otherNetwork(m.host)
	h.send(event{Node: n.Name, NodeReady: true, OtherNetwork: other})
	if other {
		return h.change(func(r *Record) { r.OtherNetwork = true })
	}
	return h.setNode(n.Name, func(n *Node) { n.Ready = time.Now() })
}

// otherNetwork reports whether the settings with which a node runs leave the pods' network to a plug-in that coracle does not bring.
func otherNetwork(on *nshost.Host) bool {
	cfg, err := config.Load(on.Path(paths.Default().Resolved()))
	return err == nil && cfg.Network.Backend == config.BackendNone
}

// awaitReady runs coracle wait on the node and reports its progress.
func (h *holder) awaitReady(ctx context.Context, m *member) error {
	n := m.node
	cmd := m.host.Command(coraclePath, "wait", "--timeout=24h", "--without-network")
	cmd.Env = h.env
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	release, err := nshost.StartDurably(cmd)
	if err != nil {
		return err
	}
	defer release()
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // nshost passes it on to the command
	defer stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		h.send(event{Node: n.Name, Text: lines.Text()})
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("waiting for %s: %w", n.Name, err)
	}
	return nil
}
