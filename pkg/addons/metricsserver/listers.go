package metricsserver

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// reachableNodes leaves out nodes whose status is unknown, because each would delay every round by scrapeTimeout.
type reachableNodes struct{ corelisters.NodeLister }

// List implements corelisters.NodeLister.
func (h reachableNodes) List(selector labels.Selector) ([]*corev1.Node, error) {
	nodes, err := h.NodeLister.List(selector)
	return slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return kube.NodeReadiness(n) == corev1.ConditionUnknown }), err
}

// runningPods is a lister of the metadata of running pods, as metrics-server expects it, over a cache of pods.
type runningPods struct{ pods corelisters.PodLister }

// List implements cache.GenericLister.
func (r runningPods) List(selector labels.Selector) ([]runtime.Object, error) {
	return metadata(r.pods.List(selector))
}

// Get implements cache.GenericLister for objects without a namespace, which pods never are.
func (r runningPods) Get(name string) (runtime.Object, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

// ByNamespace implements cache.GenericLister.
func (r runningPods) ByNamespace(namespace string) cache.GenericNamespaceLister {
	return namespacePods{r.pods.Pods(namespace)}
}

type namespacePods struct {
	pods corelisters.PodNamespaceLister
}

// List implements cache.GenericNamespaceLister.
func (n namespacePods) List(selector labels.Selector) ([]runtime.Object, error) {
	return metadata(n.pods.List(selector))
}

// Get implements cache.GenericNamespaceLister.
func (n namespacePods) Get(name string) (runtime.Object, error) {
	pod, err := n.pods.Get(name)
	if err != nil {
		return nil, err
	}
	if pod.Status.Phase != corev1.PodRunning {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return metadataOf(pod), nil
}

func metadata(pods []*corev1.Pod, err error) ([]runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	out := make([]runtime.Object, 0, len(pods))
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodRunning {
			out = append(out, metadataOf(pod))
		}
	}
	return out, nil
}

func metadataOf(pod *corev1.Pod) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels, CreationTimestamp: pod.CreationTimestamp,
	}}
}
