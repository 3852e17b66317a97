package localstorage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
)

func node(name string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}
}

func volume(name, node string, phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{localpath.NodeLabel: node}, Finalizers: []string{localpath.VolumeFinalizer},
			Annotations: map[string]string{localpath.ProvisionedBy: localpath.Provisioner}},
		Spec:   corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: policy},
		Status: corev1.PersistentVolumeStatus{Phase: phase},
	}
}

func claim(name, node, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Annotations: map[string]string{localpath.SelectedNode: node, localpath.ProvisionerOf: localpath.Provisioner}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume},
	}
}

// work runs the component against a server that is a map.
func work(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watchOrphans(ctx, client)
	}()
	t.Cleanup(func() { stop(); <-ended })
}

// givenBack is an error unless the claim waits for no node.
func givenBack(t *testing.T, client kubernetes.Interface, name string) error {
	c, err := client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), name, metav1.GetOptions{})
	if err == nil && c.Annotations[localpath.SelectedNode] != "" {
		err = fmt.Errorf("claim %s still waits for %s", name, c.Annotations[localpath.SelectedNode])
	}
	return err
}

func isGone(t *testing.T, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(fmt.Errorf("volume %s is there", name), err)
}

// TestNodeGone has a node that was gone before, one that goes, and one that stays.
func TestNodeGone(t *testing.T) {
	const remove, keep = corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain
	client := fake.NewClientset(node("goes"), node("stays"),
		volume("released-before", "before", corev1.VolumeReleased, remove), volume("kept-before", "before", corev1.VolumeReleased, keep),
		volume("bound-before", "before", corev1.VolumeBound, remove),
		volume("released-goes", "goes", corev1.VolumeReleased, remove), volume("bound-goes", "goes", corev1.VolumeBound, remove),
		volume("released-stays", "stays", corev1.VolumeReleased, remove),
		claim("before", "before", ""), claim("goes", "goes", ""), claim("stays", "stays", ""), claim("has", "goes", "bound-goes"))
	work(t, client)
	eventually(t, func() error { return isGone(t, client, "released-before") })
	eventually(t, func() error { return givenBack(t, client, "before") })
	if isGone(t, client, "released-goes") == nil || givenBack(t, client, "goes") == nil {
		t.Error("the node that is there has lost something")
	}
	if err := client.CoreV1().Nodes().Delete(t.Context(), "goes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return isGone(t, client, "released-goes") })
	eventually(t, func() error { return givenBack(t, client, "goes") })

	// A claim is deleted after its node.
	if _, err := client.CoreV1().PersistentVolumes().Update(t.Context(), volume("bound-goes", "goes", corev1.VolumeReleased, remove), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return isGone(t, client, "bound-goes") })
	for _, name := range []string{"kept-before", "bound-before", "released-stays"} {
		if isGone(t, client, name) == nil {
			t.Errorf("volume %s is gone", name)
		}
	}
	for _, name := range []string{"stays", "has"} {
		if givenBack(t, client, name) == nil {
			t.Errorf("claim %s was given back", name)
		}
	}
}

// TestNodeDead gives back the claims of a node that has not answered for long, and leaves its volumes.
func TestNodeDead(t *testing.T) {
	since := func(ago time.Duration) corev1.Taint {
		at := metav1.NewTime(time.Now().Add(-ago))
		return corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &at}
	}
	client := fake.NewClientset(node("dead", since(2*time.Minute)), node("slow", since(time.Second)),
		volume("released", "dead", corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete), claim("dead", "dead", ""), claim("slow", "slow", ""))
	work(t, client)
	eventually(t, func() error { return givenBack(t, client, "dead") })
	if givenBack(t, client, "slow") == nil || isGone(t, client, "released") == nil {
		t.Error("a node that may answer again has lost something")
	}
}

// TestNodesDieOneAfterTheOther needs a wake-up for each of them.
func TestNodesDieOneAfterTheOther(t *testing.T) {
	since := func(ago time.Duration) corev1.Taint {
		at := metav1.NewTime(time.Now().Add(-ago))
		return corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &at}
	}
	client := fake.NewClientset(node("one", since(unreachableTimeout-time.Second)), node("two", since(unreachableTimeout-2*time.Second)),
		claim("one", "one", ""), claim("two", "two", ""))
	work(t, client)
	eventually(t, func() error { return errors.Join(givenBack(t, client, "one"), givenBack(t, client, "two")) })
}

// TestOneRefused: a volume that somebody keeps from being removed holds up neither the others nor the claims.
func TestOneRefused(t *testing.T) {
	client := fake.NewClientset(volume("a", "old", corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete),
		volume("b", "old", corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete), claim("waits", "old", ""))
	client.PrependReactor("patch", "persistentvolumes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.(clienttesting.PatchAction).GetName() == "a", nil, errors.New("not this one")
	})
	err := orphanCare{client, cache.NewStore(cache.MetaNamespaceKeyFunc)}.handle(t.Context(), "")
	if err == nil || !strings.Contains(err.Error(), "removing volume a: not this one") {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(isGone(t, client, "b"), givenBack(t, client, "waits")); err != nil {
		t.Error(err)
	}
}
