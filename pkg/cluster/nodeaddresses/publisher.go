package nodeaddresses

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider/api"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Publisher writes the desired external addresses into an annotation of its own Node, or removes the annotation of an earlier start.
type Publisher struct {
	Node *kube.OwnNode
	// Kubeconfig is the kubelet's, which can change its own Node only.
	Kubeconfig string
	// IPs are the external addresses, usually none.
	IPs []netip.Addr
}

// Run works until ctx is done, at changes of the Node. It is ready at once.
func (p Publisher) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(p.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	for {
		node, changed := p.Node.Get()
		var again <-chan time.Time
		if value, differs := p.desired(node); differs {
			err := kube.AnnotateNode(ctx, client, p.Node.Name, map[string]*string{kube.ExternalIPAnnotation: value})
			if err != nil && ctx.Err() == nil {
				logrus.WithField("component", "external-ip").WithError(err).Warn("publishing this node's external addresses failed; trying again")
				again = time.After(5 * time.Second)
			}
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// desired returns the annotation's value, nil for no annotation, and whether the Node differs. The annotation stays while the Node has the
// taint of an earlier start, because the control plane removes the taint from nodes with the annotation only.
func (p Publisher) desired(node *corev1.Node) (value *string, differs bool) {
	if node == nil {
		return nil, false
	}
	have, has := node.Annotations[kube.ExternalIPAnnotation]
	if len(p.IPs) == 0 {
		tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudprovider.TaintExternalCloudProvider })
		return nil, has && !tainted
	}
	var texts []string
	for _, ip := range p.IPs {
		texts = append(texts, ip.String())
	}
	want := strings.Join(texts, ",")
	return &want, want != have
}
