package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// Node is this machine's node in the cluster.
type Node struct {
	Name       string   `json:"name"`
	Ready      bool     `json:"ready"`
	Message    string   `json:"message,omitempty"` // why it is not ready
	Version    string   `json:"version"`
	Addresses  []string `json:"addresses"`
	PodCIDRs   []string `json:"podCIDRs,omitempty"`
	Cordoned   bool     `json:"cordoned,omitempty"`
	Containers string   `json:"containerRuntime,omitempty"`
	Usage      *Usage   `json:"usage,omitempty"` // nil if metrics-server has no figures
}

// Usage is the use of resources on the node, as kubectl top shows it, and what the node has for pods.
type Usage struct {
	MilliCPU    int64     `json:"milliCPU"`
	MilliCPUs   int64     `json:"allocatableMilliCPU"`
	Memory      int64     `json:"memoryBytes"`
	Allocatable int64     `json:"allocatableMemoryBytes"`
	Measured    time.Time `json:"measured,omitzero"`
}

// addNode reads the node from the API.
func (r *Report) addNode(ctx context.Context, ask func(context.Context) (*Node, error)) {
	limit := nodeTimeout
	if r.Health != Ready {
		limit = shortTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	node, err := ask(ctx)
	if err != nil {
		r.add("the node cannot be read from the API: " + err.Error())
		return
	}
	r.Node = node
	if node != nil && !node.Ready {
		r.add("the node is not Ready: " + node.Message)
	}
}

// add adds reasons why coracle is not ready.
func (r *Report) add(reasons ...string) {
	r.Reasons = append(r.Reasons, reasons...)
	if len(reasons) > 0 && r.Health == Ready {
		r.Health, r.Since = Degraded, r.Processes[0].Started
	}
}

// AskAPI returns a function that reads the named node with a kubeconfig file.
func AskAPI(kubeconfig, name string) func(context.Context) (*Node, error) {
	return func(ctx context.Context) (*Node, error) {
		cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
		}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		asked := make(chan *metrics.NodeMetrics, 1)
		go func() { asked <- askUsage(ctx, client, name) }()
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("the cluster has no node %s", name)
		case errors.Is(err, context.DeadlineExceeded):
			return nil, errors.New("the API does not answer in time")
		case err != nil:
			return nil, err
		}
		out := describe(node)
		if used := <-asked; used != nil {
			out.Usage = &Usage{
				MilliCPU: used.Usage.Cpu().MilliValue(), MilliCPUs: node.Status.Allocatable.Cpu().MilliValue(),
				Memory: used.Usage.Memory().Value(), Allocatable: node.Status.Allocatable.Memory().Value(),
				Measured: used.Timestamp.Time,
			}
		}
		return out, nil
	}
}

// askUsage returns metrics-server's figures for a node; nil if it has none yet, is disabled, or does not answer within shortTimeout.
func askUsage(ctx context.Context, client kubernetes.Interface, name string) *metrics.NodeMetrics {
	ctx, cancel := context.WithTimeout(ctx, shortTimeout)
	defer cancel()
	data, err := client.CoreV1().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes", name).DoRaw(ctx)
	var out metrics.NodeMetrics
	if err != nil || json.Unmarshal(data, &out) != nil {
		return nil
	}
	return &out
}

func describe(node *corev1.Node) *Node {
	out := &Node{
		Name: node.Name, Version: node.Status.NodeInfo.KubeletVersion, PodCIDRs: node.Spec.PodCIDRs,
		Cordoned: node.Spec.Unschedulable, Containers: node.Status.NodeInfo.ContainerRuntimeVersion,
		Message: "the kubelet has not reported yet",
	}
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeHostName {
			out.Addresses = append(out.Addresses, a.Address)
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready, out.Message = c.Status == corev1.ConditionTrue, c.Message
		}
	}
	if out.Ready {
		out.Message = ""
	}
	return out
}
