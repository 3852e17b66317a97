// Package runtimes makes the RuntimeClasses of container runtimes that nodes have. A node says in its status which handlers its
// containerd has; only those in the table of package handlers count, so no node can make other RuntimeClasses.
package runtimes

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/runtime/handlers"
)

// Classes makes a RuntimeClass for each known handler that some node has. It makes each once, and changes and deletes none.
type Classes struct {
	// Kubeconfig is allowed to list and watch Nodes, and to create RuntimeClasses.
	Kubeconfig string
}

// Run works until ctx is done. It is ready at once, because no other part needs RuntimeClasses.
func (c Classes) Run(ctx context.Context, ready func()) error {
	client, err := kube.FencedClient(ctx, c.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	run(kube.WithComponent(ctx, "runtimes"), client, cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything()))
	return nil
}

func run(ctx context.Context, client kubernetes.Interface, nodes cache.ListerWatcher) {
	var made sync.Map // names of handlers
	kube.NodeWork{
		Component: "runtimes", Nodes: nodes, Trim: trim,
		Items: func(node *corev1.Node) (names []string) {
			for _, h := range node.Status.RuntimeHandlers {
				if _, done := made.Load(h.Name); !done {
					names = append(names, h.Name)
				}
			}
			return names
		},
		Handle: func(ctx context.Context, _ cache.Store, name string) error {
			if err := create(ctx, client, name); err != nil {
				return err
			}
			made.Store(name, true)
			return nil
		},
	}.Run(ctx)
}

// trim keeps the known handlers of a node.
func trim(full, small *corev1.Node) {
	small.Status.RuntimeHandlers = slices.DeleteFunc(slices.Clone(full.Status.RuntimeHandlers), func(h corev1.NodeRuntimeHandler) bool { return !handlers.IsKnown(h.Name) })
}

// create makes the RuntimeClass of a handler, unless there is one of that name.
func create(ctx context.Context, client kubernetes.Interface, name string) error {
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: name}
	if _, err := client.NodeV1().RuntimeClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making RuntimeClass %s: %w", name, err)
	}
	return nil
}
