package noderoles

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

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

// add adds a Node, unless it is in the file.
func (m *Memory) add(name string, uid types.UID) error {
	return m.change(func(nodes map[string]types.UID) { nodes[name] = uid })
}

// remove removes a Node from the file.
func (m *Memory) remove(name string) error {
	return m.change(func(nodes map[string]types.UID) { delete(nodes, name) })
}

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
	data, err := json.Marshal(nodes)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(m.File, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("remembering the machine's Node: %w", err)
	}
	return nil
}

func (m *Memory) read() (map[string]types.UID, error) {
	data, err := os.ReadFile(m.File)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]types.UID{}, nil
	}
	if err != nil {
		return nil, err
	}
	nodes := map[string]types.UID{}
	return nodes, json.Unmarshal(data, &nodes)
}
