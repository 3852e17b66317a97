package localcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// member is the holder's state of a node. The holder's mutex guards the fields that change.
type member struct {
	node   Node
	host   *nshost.Host
	wanted bool // the node should be up
	busy   bool // it is being started or stopped
	life   int  // number of boots
}

func (h *holder) member(name string) *member {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.members[name]
}

// supervise restarts coracle when it ends while its host should be up, as a machine's init does.
func (h *holder) supervise(m *member, life int, ended <-chan error) {
	for pause := time.Second; ; {
		began := time.Now()
		err := <-ended
		if !h.isWanted(m, life) {
			return
		}
		fmt.Fprintf(os.Stderr, "%s %s: coracle ended: %v\n", time.Now().Format(time.RFC3339), m.node.Name, err)
		if time.Since(began) > time.Minute {
			pause = time.Second
		}
		<-time.After(pause)
		pause = min(2*pause, 30*time.Second)
		if ended = h.restart(m, life); ended == nil {
			return
		}
	}
}

func (h *holder) isWanted(m *member, life int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return m.wanted && m.life == life
}

// restart starts coracle on a node and returns a channel for its end. It is nil if the node should not be up any more.
func (h *holder) restart(m *member, life int) <-chan error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !m.wanted || m.life != life {
		return nil
	}
	return h.coracle(m)
}

// Orders to the holder. See also orderSnapshot.
const (
	orderStop  = "stop"
	orderStart = "start"
)

// order is a request to the holder. The response is the same object with Error.
type order struct {
	Do    string `json:"do,omitempty"`
	Node  string `json:"node,omitempty"`
	To    string `json:"to,omitempty"`    // name of the snapshot
	Owned bool   `json:"owned,omitempty"` // the snapshot is removed with the cluster's owner
	Error string `json:"error,omitempty"`
}

// control serves orders on the cluster's socket.
func (h *holder) control() error {
	path := h.store.socket(h.record.Name)
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listening for requests: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go h.handleRequest(conn)
		}
	}()
	return nil
}

func (h *holder) handleRequest(conn net.Conn) {
	defer conn.Close()
	var o order
	if err := json.NewDecoder(conn).Decode(&o); err != nil {
		return
	}
	if err := h.execute(o); err != nil {
		o.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(o)
}

// execute starts or stops a node, or takes a snapshot.
func (h *holder) execute(o order) error {
	if o.Do == orderSnapshot {
		return h.takeSnapshot(o)
	}
	m := h.member(o.Node)
	if m == nil {
		return fmt.Errorf("there is no node %s", o.Node)
	}
	up := o.Do == orderStart
	h.mu.Lock()
	was, busy := m.wanted, m.busy
	if !busy && was != up {
		m.wanted, m.busy = up, true
		m.life++
	}
	h.mu.Unlock()
	switch {
	case busy:
		return fmt.Errorf("node %s is being started or stopped", o.Node)
	case was == up:
		return nil
	}
	defer func() {
		h.mu.Lock()
		m.busy = false
		h.mu.Unlock()
	}()
	if up {
		return h.startNode(m)
	}
	return h.stopNode(m)
}

// stopNode kills all processes of a node at once.
func (h *holder) stopNode(m *member) error {
	m.host.Kill()
	return h.setNode(m.node.Name, func(n *Node) { n.PID = 0 })
}

func (h *holder) startNode(m *member) error {
	if err := m.host.Boot(); err != nil {
		h.mu.Lock()
		m.wanted = false
		h.mu.Unlock()
		return err
	}
	if ended := h.restart(m, m.life); ended != nil {
		go h.supervise(m, m.life, ended)
	}
	return h.setNode(m.node.Name, func(n *Node) { n.PID = m.host.PID() })
}

// Command prepares a command that runs on a node, with the environment of nodes.
func (s Store) Command(cluster, node, name string, args ...string) (*exec.Cmd, error) {
	r, err := s.Load(cluster)
	if err != nil {
		return nil, err
	}
	n, err := r.Node(node)
	if err != nil {
		return nil, err
	}
	if r.State == Dead || n.PID == 0 {
		return nil, fmt.Errorf("node %s is down", n.Name)
	}
	cmd := nshost.CommandAt(n.PID, n.Cgroup, name, args...)
	cmd.Env = nodeEnv()
	return cmd, nil
}

// StopNode kills all processes of a node at once, like a power cut. Its disks stay.
func (s Store) StopNode(cluster, node string) error { return s.order(cluster, node, orderStop) }

// StartNode boots a stopped node. It does not wait until the node is Ready.
func (s Store) StartNode(cluster, node string) error { return s.order(cluster, node, orderStart) }

func (s Store) order(cluster, node, do string) error {
	r, err := s.Load(cluster)
	if err != nil {
		return err
	}
	n, err := r.Node(node)
	if err != nil {
		return err
	}
	return s.ask(r, order{Do: do, Node: n.Name})
}

// ask sends an order to a cluster's holder and waits for the result.
func (s Store) ask(r Record, o order) error {
	cluster := r.Name
	if r.State != Running {
		return fmt.Errorf("cluster %s is %s; coracle down %s removes it", r.Name, r.State, r.Name)
	}
	conn, err := net.Dial("unix", s.socket(cluster))
	if err != nil {
		return fmt.Errorf("asking the process that holds cluster %s: %w", cluster, err)
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(o); err != nil {
		return err
	}
	var answer order
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return fmt.Errorf("asking the process that holds cluster %s: %w", cluster, err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// Node finds a node by its name, with or without the prefix of the cluster's name.
func (r Record) Node(name string) (Node, error) {
	i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Name == name || n.Name == r.Name+"-"+name })
	if i >= 0 {
		return r.Nodes[i], nil
	}
	var names []string
	for _, n := range r.Nodes {
		names = append(names, n.Name)
	}
	return Node{}, fmt.Errorf("cluster %s has no node %s; it has %s", r.Name, name, strings.Join(names, ", "))
}

func (s Store) socket(name string) string { return filepath.Join(s.dir(name), "keeper.sock") } // the name of earlier versions, whose clusters may run
