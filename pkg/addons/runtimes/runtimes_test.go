package runtimes

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

func node(handlers ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "boat"}}
	for _, h := range handlers {
		n.Status.RuntimeHandlers = append(n.Status.RuntimeHandlers, corev1.NodeRuntimeHandler{Name: h})
	}
	return n
}

// TestClasses: handlers of the table get a RuntimeClass, those that a node invents do not, and a user's class stays.
func TestClasses(t *testing.T) {
	own := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata-qemu"}
	client := fake.NewClientset(own)
	attempts := make(chan string)
	busy := true
	client.PrependReactor("create", "runtimeclasses", func(action clienttesting.Action) (bool, runtime.Object, error) {
		attempts <- action.(clienttesting.CreateAction).GetObject().(*nodev1.RuntimeClass).Name
		refused := busy
		busy = false
		return refused, nil, errors.New("the API is busy")
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nodes, stopped := watch.NewFakeWithChanSize(1, false), make(chan struct{})
	nodes.Modify(node("runc", "crun", "kata", "nvidia"))
	go func() {
		defer close(stopped)
		run(ctx, client, cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.NodeList{Items: []corev1.Node{*node("", "runc", "evil", "crun", "kata")}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nodes, nil },
		}, client))
	}()
	for range 4 { // three classes, one of them twice
		select {
		case name := <-attempts:
			t.Logf("an attempt to make %q", name)
		case <-ctx.Done():
			t.Fatal("there were fewer attempts than expected")
		}
	}
	cancel()
	<-stopped
	list, err := client.NodeV1().RuntimeClasses().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list.Items {
		got = append(got, c.Name+"="+c.Handler)
	}
	slices.Sort(got)
	if want := []string{"crun=crun", "kata=kata-qemu", "nvidia=nvidia"}; !slices.Equal(got, want) {
		t.Errorf("the RuntimeClasses are %q, not %q", got, want)
	}
}
