package noderoles

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Former deletes the Nodes that the machine had under other names. Without that they would count as Ready for another 40 s and get new
// pods, and keep their pods until the eviction timeout.
type Former struct {
	// Kubeconfig is allowed to delete Nodes.
	Kubeconfig string
	// Node is the machine's present node name.
	Node   string
	Memory *Memory
}

// Run deletes the Nodes and then waits until ctx is done. It is ready after the first attempt, even if that fails, so that no pods are
// scheduled before and an error of the API does not block the start.
func (f Former) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(f.Kubeconfig)
	if err != nil {
		return err
	}
	log := logrus.WithField("component", "former-node")
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 30*time.Second) {
		err := f.forget(ctx, client, log)
		ready()
		var again <-chan time.Time
		if err != nil && ctx.Err() == nil {
			log.WithError(err).Warn("trying again")
			again = time.After(pause)
		}
		select {
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

func (f Former) forget(ctx context.Context, client kubernetes.Interface, log logrus.FieldLogger) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for name, uid := range f.Memory.Former(f.Node) {
		err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))})
		switch {
		case err == nil:
			log.Infof("deleted node %s: this machine had that name and is now node %s", name, f.Node)
		case apierrors.IsNotFound(err):
		case apierrors.IsConflict(err):
			log.Infof("left node %s alone: this machine had that name, but the node is another's now", name)
		default:
			return fmt.Errorf("deleting node %s, which this machine was before: %w", name, err)
		}
		if err := f.Memory.remove(name); err != nil {
			return err
		}
	}
	return nil
}

// Memory is the file with the Nodes that belong or belonged to this machine: their UIDs by name. The UID tells a Node of another machine that
// got the name later from this machine's.
type Memory struct {
	File string
	mu   sync.Mutex // held to change the file
}

// Former returns the Nodes in the file except the machine's present one. A missing or damaged file counts as empty.
func (m *Memory) Former(now string) map[string]types.UID {
	nodes, err := m.read()
	if err != nil {
		return nil
	}
	delete(nodes, now)
	return nodes
}

// knows reports whether a Node is in the file.
func (m *Memory) knows(name string, uid types.UID) bool {
	nodes, err := m.read()
	return err == nil && nodes[name] == uid
}

// add adds a Node to the file.
func (m *Memory) add(name string, uid types.UID) error {
	return m.change(func(nodes map[string]types.UID) { nodes[name] = uid })
}

// remove removes a Node from the file.
func (m *Memory) remove(name string) error {
	return m.change(func(nodes map[string]types.UID) { delete(nodes, name) })
}

// change changes the file. A damaged file counts as empty.
func (m *Memory) change(f func(map[string]types.UID)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	nodes, err := m.read()
	if err != nil {
		nodes = map[string]types.UID{}
	}
	before := maps.Clone(nodes)
	f(nodes)
	if maps.Equal(before, nodes) {
		return nil
	}
	if err := atomicfile.WriteJSON(m.File, nodes, 0o600); err != nil {
		return fmt.Errorf("remembering the machine's Node: %w", err)
	}
	return nil
}

// read reads the file. A missing file is empty.
func (m *Memory) read() (map[string]types.UID, error) {
	nodes := map[string]types.UID{}
	_, err := atomicfile.ReadJSON(m.File, &nodes)
	return nodes, err
}
