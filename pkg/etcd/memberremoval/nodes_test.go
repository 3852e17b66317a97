package memberremoval

import (
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// nodeList is a list of Nodes that can be watched.
type nodeList struct {
	mu      sync.Mutex
	names   []string
	version int
	events  *watch.RaceFreeFakeWatcher
}

func newNodes(names ...string) *nodeList {
	return &nodeList{names: names, version: 1, events: watch.NewRaceFreeFake()}
}

func (n *nodeList) node(name string) *corev1.Node {
	one := node(name)
	one.ResourceVersion = strconv.Itoa(n.version)
	return one
}

// List is a ListerWatcher's.
func (n *nodeList) List(metav1.ListOptions) (runtime.Object, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(n.version)}}
	for _, name := range n.names {
		list.Items = append(list.Items, *n.node(name))
	}
	return list, nil
}

// Watch is a ListerWatcher's.
func (n *nodeList) Watch(metav1.ListOptions) (watch.Interface, error) { return n.events, nil }

// IsWatchListSemanticsUnSupported says that a watch does not begin with the list.
func (n *nodeList) IsWatchListSemanticsUnSupported() bool { return true }

func (n *nodeList) delete(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version++
	n.names = slices.DeleteFunc(n.names, func(m string) bool { return m == name })
	n.events.Delete(n.node(name))
}

func (n *nodeList) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version++
	n.names = append(n.names, name)
	n.events.Add(n.node(name))
}
