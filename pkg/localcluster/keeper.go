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

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
	"github.com/coracle-dev/coracle/pkg/machine/host"
)

// keeper is the root of a cluster's processes.
type keeper struct {
	store Store
	conn  net.Conn // to who makes the cluster
	net   *network
	env   []string

	guarded int    // the process group that must not outlive who holds the cluster; 0 is none
	leader  uint64 // when the first process of that group began

	sealing sync.Mutex // held while the nodes stand still

	mu      sync.Mutex
	record  Record
	members map[string]*member
	enc     *json.Encoder // onto conn
}

// event is what the keeper tells who makes the cluster, one JSON object a line.
type event struct {
	// Node and Text say what is under way on a node.
	Node string `json:"node,omitempty"`
	Text string `json:"text,omitempty"`
	// NodeReady says that the node is.
	NodeReady bool `json:"nodeReady,omitempty"`
	// Ready says that the whole cluster is, Error why it will not be.
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
}

// keepOn is what the keeper is told when it is to live on alone.
const keepOn = "keep"

// keeperFD is where the keeper finds the socket to who makes the cluster.
const keeperFD = 3

// Keep is the keeper's life: it makes the cluster, says so on its socket, and holds it until it is killed. If whoever
// makes the cluster goes away before that, it removes the cluster again.
func Keep(s Store, name string) error {
	conn, err := net.FileConn(os.NewFile(keeperFD, "maker"))
	if err != nil {
		return fmt.Errorf("the keeper of a cluster is started by coracle up only: %w", err)
	}
	r, err := s.Load(name)
	if err != nil {
		return err
	}
	k := &keeper{store: s, conn: conn, record: r, members: map[string]*member{}, env: nodeEnv(), enc: json.NewEncoder(conn)}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	alone := make(chan error, 1)
	go func() {
		err := k.awaitMaker()
		if err != nil {
			cancel()
		}
		alone <- err
	}()
	if err := explain(k.make(ctx)); err != nil {
		k.tell(event{Error: err.Error()})
		<-alone // whoever made the cluster reads the logs, then removes it
		return k.abandon(err)
	}
	if err := k.leaveSession(); err != nil {
		fmt.Fprintln(os.Stderr, "leaving the user's session:", err)
	}
	k.tell(event{Ready: true})
	if err := <-alone; err != nil {
		endGroup(k.guarded, k.leader)
		return k.abandon(err)
	}
	select {} // all that is left to do is done by who supervises the nodes, and who answers on the control socket
}

// awaitMaker waits until whoever makes the cluster lets go of it. It is an error to go without a word.
func (k *keeper) awaitMaker() error {
	for lines := bufio.NewScanner(k.conn); lines.Scan(); {
		if lines.Text() == keepOn {
			return nil
		}
		if group, ok := strings.CutPrefix(lines.Text(), guardOrder); ok {
			k.guarded, _ = strconv.Atoi(group)
			k.leader, _ = state.StartTicks(k.guarded)
		}
	}
	return errors.New("coracle up was ended before the cluster was ready")
}

// abandon removes a cluster that did not come up. What is left ends with this process.
func (k *keeper) abandon(why error) error {
	for _, m := range k.members {
		m.host.Kill()
		_ = m.host.Discard() // what it could not remove is removed, or complained about, below
	}
	if k.net != nil && k.net.nft != 0 {
		_ = syscall.Kill(k.net.nft, syscall.SIGKILL)
	}
	for _, mounted := range []string{k.store.executable(k.record.Name), k.store.hosts(k.record.Name)} {
		_ = unix.Unmount(mounted, unix.MNT_DETACH)
	}
	// What runs in the cluster's cgroups is about to be killed, and this may be the keeper that holds a session.
	if err := nshost.JoinCgroup("", os.Getpid()); err != nil {
		why = errors.Join(why, err)
	}
	_, err := k.store.remove(k.record)
	return errors.Join(why, err)
}

// leaveSession moves the keeper out of the cgroup in which it was started: the end of a user's session, or of a step
// of a CI job, is not the cluster's.
func (k *keeper) leaveSession() error {
	var errs []error
	for _, pid := range []int{os.Getpid(), k.net.nft} {
		errs = append(errs, nshost.JoinCgroup(filepath.Join(k.record.Cgroup(), "keeper"), pid))
	}
	return errors.Join(errs...)
}

func (k *keeper) tell(e event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.enc.Encode(e) // if nobody listens any more awaitMaker knows it
}

// change changes the record, in the file too. It reads the file first, because the removal of another cluster may have changed
// UserConfig there.
func (k *keeper) change(f func(*Record)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, err := k.store.Load(k.record.Name)
	if err != nil {
		return err
	}
	f(&r)
	k.record = r
	return k.store.save(r)
}

// make makes the cluster and returns when every node is Ready.
func (k *keeper) make(ctx context.Context) error {
	// Ours is a mount namespace of its own. What is unmounted on the machine must not be held here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("taking the keeper's mounts apart from the machine's: %w", err)
	}
	self, err := describeProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := k.change(func(r *Record) { r.Keeper = self }); err != nil {
		return err
	}
	if err := host.Nest("/sys/fs/cgroup"); err != nil {
		return err
	}
	if err := k.prepare(); err != nil {
		return err
	}
	if err := machineSysctls().Hold(ctx, k.store.recordFile(k.record.Name), self); err != nil {
		return err
	}
	if k.net, err = makeNetwork(k.record); err != nil {
		return err
	}
	if err := serveDNS(ctx, k.net.wire, k.record.Wire()); err != nil {
		return err
	}
	if err := k.restore(); err != nil {
		return err
	}
	if err := k.eachNode(func(n *Node) error { return k.boot(n) }); err != nil {
		return err
	}
	if err := k.eachNode(func(n *Node) error { return k.start(ctx, n) }); err != nil {
		return err
	}
	if err := k.writeKubeconfig(); err != nil {
		return err
	}
	if err := k.balance(ctx); err != nil {
		return err
	}
	if err := k.control(); err != nil {
		return err
	}
	return k.change(func(r *Record) { r.State = Running })
}

// explain adds what to do about a container that may not do what is needed.
func explain(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%w; inside a container, coracle up needs all privileges (docker run --privileged)", err)
	}
	return err
}

// eachNode does something for all nodes at a time and returns the first error.
func (k *keeper) eachNode(do func(*Node) error) error {
	k.mu.Lock()
	nodes := k.record.Nodes
	k.mu.Unlock()
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

// setNode changes what the record says of a node.
func (k *keeper) setNode(name string, f func(*Node)) error {
	return k.change(func(r *Record) {
		for i := range r.Nodes {
			if r.Nodes[i].Name == name {
				f(&r.Nodes[i])
			}
		}
	})
}

// start runs coracle on a node that is up and waits until the node is Ready.
func (k *keeper) start(ctx context.Context, n *Node) error {
	m := k.member(n.Name)
	ended := make(chan error, 1)
	run, err := k.coracle(m)
	if err != nil {
		return err
	}
	go func() { ended <- run() }()
	ready := make(chan error, 1)
	go func() { ready <- k.awaitReady(ctx, m) }()
	select {
	case err := <-ready:
		if err != nil {
			return err
		}
	case err := <-ended:
		return fmt.Errorf("coracle on %s ended: %w", n.Name, err)
	}
	go k.supervise(m, 0, ended)
	k.tell(event{Node: n.Name, NodeReady: true})
	return k.setNode(n.Name, func(n *Node) { n.Ready = time.Now() })
}

// awaitReady runs coracle wait on the node and passes on what it says.
func (k *keeper) awaitReady(ctx context.Context, m *member) error {
	n := m.node
	cmd := m.host.Command(coraclePath, "wait", "--timeout=24h")
	cmd.Env = k.env
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	release, err := nshost.StartDurably(cmd)
	if err != nil {
		return err
	}
	defer release()
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // which is passed on
	defer stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		k.tell(event{Node: n.Name, Text: lines.Text()})
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("waiting for %s: %w", n.Name, err)
	}
	return nil
}
