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

// member is a node as its keeper has it. The keeper's lock guards all but what never changes.
type member struct {
	node   Node
	host   *nshost.Host
	wanted bool // it is to be up
	busy   bool // it is being started or stopped
	life   int  // counts its boots
}

func (k *keeper) member(name string) *member {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.members[name]
}

// supervise starts coracle again when it ends while its host is to be up, as a machine's init would.
func (k *keeper) supervise(m *member, life int, ended <-chan error) {
	for pause := time.Second; ; {
		began := time.Now()
		err := <-ended
		if !k.isWanted(m, life) {
			return
		}
		fmt.Fprintf(os.Stderr, "%s %s: coracle ended: %v\n", time.Now().Format(time.RFC3339), m.node.Name, err)
		if time.Since(began) > time.Minute {
			pause = time.Second
		}
		<-time.After(pause)
		pause = min(2*pause, 30*time.Second)
		if ended = k.again(m, life); ended == nil {
			return
		}
	}
}

func (k *keeper) isWanted(m *member, life int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return m.wanted && m.life == life
}

// again starts coracle on a node if that is still to be up. Nil says that it is not.
func (k *keeper) again(m *member, life int) <-chan error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !m.wanted || m.life != life {
		return nil
	}
	ended := make(chan error, 1)
	run, err := k.coracle(m)
	if err != nil {
		ended <- err
		return ended
	}
	go func() { ended <- run() }()
	return ended
}

// Orders that a keeper takes.
const (
	orderStop  = "stop"
	orderStart = "start"
)

// order is what a keeper is asked to do with a node; the answer has the same form.
type order struct {
	Do    string `json:"do,omitempty"`
	Node  string `json:"node,omitempty"`
	To    string `json:"to,omitempty"` // of a seal
	Error string `json:"error,omitempty"`
}

// control takes orders on the cluster's socket.
func (k *keeper) control() error {
	path := k.store.socket(k.record.Name)
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listening for orders: %w", err)
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
			go k.obey(conn)
		}
	}()
	return nil
}

func (k *keeper) obey(conn net.Conn) {
	defer conn.Close()
	var o order
	if err := json.NewDecoder(conn).Decode(&o); err != nil {
		return
	}
	if err := k.carryOut(o); err != nil {
		o.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(o)
}

// carryOut stops or starts a node.
func (k *keeper) carryOut(o order) error {
	if o.Do == orderSeal {
		return k.seal(o.To)
	}
	m := k.member(o.Node)
	if m == nil {
		return fmt.Errorf("there is no node %s", o.Node)
	}
	up := o.Do == orderStart
	k.mu.Lock()
	was, busy := m.wanted, m.busy
	if !busy && was != up {
		m.wanted, m.busy = up, true
		m.life++
	}
	k.mu.Unlock()
	switch {
	case busy:
		return fmt.Errorf("node %s is just being started or stopped", o.Node)
	case was == up:
		return nil
	}
	defer func() {
		k.mu.Lock()
		m.busy = false
		k.mu.Unlock()
	}()
	if up {
		return k.startAgain(m)
	}
	return k.stopNode(m)
}

// stopNode pulls a node's plug.
func (k *keeper) stopNode(m *member) error {
	m.host.Kill()
	return k.setNode(m.node.Name, func(n *Node) { n.PID = 0 })
}

func (k *keeper) startAgain(m *member) error {
	if err := m.host.Boot(); err != nil {
		k.mu.Lock()
		m.wanted = false
		k.mu.Unlock()
		return err
	}
	if ended := k.again(m, m.life); ended != nil {
		go k.supervise(m, m.life, ended)
	}
	return k.setNode(m.node.Name, func(n *Node) { n.PID = m.host.PID() })
}

// Command prepares a command that runs on a node, with an environment of the node's.
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

// StopNode pulls the plug of a node, as far as its processes can tell. Its disks stay.
func (s Store) StopNode(cluster, node string) error { return s.order(cluster, node, orderStop) }

// StartNode starts a node that was stopped. It does not wait until it is Ready.
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

// ask gives the keeper of a cluster an order and returns when it is carried out.
func (s Store) ask(r Record, o order) error {
	cluster := r.Name
	if r.State != Running {
		return fmt.Errorf("cluster %s is %s; coracle down %s removes it", r.Name, r.State, r.Name)
	}
	conn, err := net.Dial("unix", s.socket(cluster))
	if err != nil {
		return fmt.Errorf("asking the keeper of cluster %s: %w", cluster, err)
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(o); err != nil {
		return err
	}
	var answer order
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return fmt.Errorf("asking the keeper of cluster %s: %w", cluster, err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// Node finds a node by its name, which may lack the cluster's name in front.
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

func (s Store) socket(name string) string { return filepath.Join(s.dir(name), "keeper.sock") }
