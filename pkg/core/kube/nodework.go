package kube

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// NodeWork is what a controller does when Nodes are added or change.
type NodeWork struct {
	Component string // in the log
	Nodes     cache.ListerWatcher
	Trim      func(full, small *corev1.Node) // keeps what is read of a Node
	// Items returns what a Node needs handled. Several Nodes can need the same.
	Items func(*corev1.Node) []string
	// Handle handles an item, one at a time. After an error it is called again, at the latest 30 s later.
	Handle func(ctx context.Context, nodes cache.Store, item string) error
}

// Run works until ctx is done, and returns when the item in hand is handled.
func (w NodeWork) Run(ctx context.Context) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 30*time.Second))
	enqueue := func(obj any) {
		if node, ok := obj.(*corev1.Node); ok {
			for _, item := range w.Items(node) {
				queue.Add(item)
			}
		}
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: w.Nodes,
		ObjectType:    &corev1.Node{},
		Transform:     Trim(w.Trim),
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }},
	})
	var working sync.WaitGroup
	working.Go(func() {
		Work(ctx, w.Component, queue, func(ctx context.Context, item string) error { return w.Handle(ctx, store, item) })
	})
	controller.RunWithContext(ctx)
	queue.ShutDown()
	working.Wait()
}
