package flannel

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"time"

	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/lease"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// The annotations with which nodes publish how their pods are reached. They are upstream's, for interoperability with flanneld.
const (
	annotated        = "flannel.alpha.coreos.com/"
	managedKey       = annotated + "kube-subnet-manager"
	backendTypeKey   = annotated + "backend-type"
	backendDataKey   = annotated + "backend-data"
	backendV6DataKey = annotated + "backend-v6-data"
	publicIPKey      = annotated + "public-ip"
	publicIPv6Key    = annotated + "public-ipv6"
)

// Pauses between attempts to publish.
const (
	firstPublishPause = 500 * time.Millisecond
	lastPublishPause  = 10 * time.Second
)

// manager provides the subnets of Nodes to flannel's backends. It differs from upstream's pkg/subnet/kube in three ways: it does not
// poll, it changes its own Node with the kubelet's credentials, so that no node can change another, and it reads no environment.
type manager struct {
	subnet.Manager // nil: its methods are flanneld's, and backends do not call them
	config         *subnet.Config
	cidrs          []netip.Prefix // of all nodes
	node           *kube.OwnNode
	own            kubernetes.Interface // has permission to change the status of its own Node
	all            kubernetes.Interface // has permission to list and watch all nodes
	wire           *wire                // nil: the backend needs none
}

func (m *manager) Name() string { return "node " + m.node.Name }

func (m *manager) GetNetworkConfig(context.Context) (*subnet.Config, error) { return m.config, nil }

// AcquireLease publishes how this node's pods are reached, and returns the node's subnets.
func (m *manager) AcquireLease(ctx context.Context, attrs *lease.LeaseAttrs) (*lease.Lease, error) {
	node, err := m.node.Await(ctx, "a pod subnet", hasSubnet)
	if err != nil {
		return nil, err
	}
	want := annotations(attrs)
	have := maps.Clone(node.Annotations)
	maps.DeleteFunc(have, func(key, value string) bool { return want[key] == "" })
	if !maps.Equal(have, want) {
		m.publish(ctx, want)
	}
	s, err := parseSubnets(node.Spec.PodCIDRs)
	if err != nil {
		return nil, err
	}
	l := &lease.Lease{
		EnableIPv4: m.config.EnableIPv4, EnableIPv6: m.config.EnableIPv6,
		Attrs: *attrs, Expiration: time.Now().AddDate(100, 0, 0), // a node keeps its subnet for life
	}
	l.Subnet, l.IPv6Subnet = flannelNets(s)
	return l, nil
}

// publish writes the annotations. If that fails, as while the API server is overloaded or another node still has the address, it tries
// again until ctx is done, because this node's pods do not need it.
func (m *manager) publish(ctx context.Context, want map[string]string) {
	body := map[string]any{"metadata": map[string]any{"annotations": want}}
	err := kube.PatchNode(ctx, m.own, m.node.Name, body, "status")
	if err == nil || ctx.Err() != nil {
		return
	}
	logrus.WithField("component", "flannel").Warnf("no node can reach the pods of this one yet: %v", err)
	go func() {
		for pause := firstPublishPause; lifecycle.Sleep(ctx, pause) == nil; pause = min(2*pause, lastPublishPause) {
			if kube.PatchNode(ctx, m.own, m.node.Name, body, "status") == nil {
				return
			}
		}
	}()
}

// annotations returns the attributes as annotations of a Node.
func annotations(attrs *lease.LeaseAttrs) map[string]string {
	out := map[string]string{managedKey: "true", backendTypeKey: attrs.BackendType}
	if attrs.PublicIP != 0 {
		out[publicIPKey], out[backendDataKey] = attrs.PublicIP.String(), dataText(attrs.BackendData)
	}
	if attrs.PublicIPv6 != nil {
		out[publicIPv6Key], out[backendV6DataKey] = attrs.PublicIPv6.String(), dataText(attrs.BackendV6Data)
	}
	return out
}

// dataText is the data of a backend as the library writes it: "null" for a backend without.
func dataText(data json.RawMessage) string {
	if len(data) == 0 {
		return "null"
	}
	return string(data)
}

// leaseOf reads how a node's pods are reached; ok is false while the node has not published it, or if its subnets are not its own. all
// are the Nodes of the cluster.
func (m *manager) leaseOf(node *corev1.Node, all []*corev1.Node) (l lease.Lease, ok bool) {
	if node.Annotations[managedKey] != "true" {
		return l, false
	}
	s := kube.SubnetsOf(node, all, m.cidrs)
	if len(s) == 0 {
		return l, false
	}
	var err error
	l.Attrs.BackendType = node.Annotations[backendTypeKey]
	l.Subnet, l.IPv6Subnet = flannelNets(s)
	if m.config.EnableIPv4 {
		l.EnableIPv4 = true
		l.Attrs.BackendData = json.RawMessage(node.Annotations[backendDataKey])
		if l.Attrs.PublicIP, err = ip.ParseIP4(node.Annotations[publicIPKey]); err != nil || l.Subnet.Empty() {
			return l, false
		}
	}
	if m.config.EnableIPv6 {
		l.EnableIPv6 = true
		l.Attrs.BackendV6Data = json.RawMessage(node.Annotations[backendV6DataKey])
		if l.Attrs.PublicIPv6, err = ip.ParseIP6(node.Annotations[publicIPv6Key]); err != nil || l.IPv6Subnet.Empty() {
			return l, false
		}
	}
	return l, true
}

// sameLease compares the fields that backends use.
func sameLease(a, b lease.Lease) bool {
	return a.Subnet.Equal(b.Subnet) && a.IPv6Subnet.Equal(b.IPv6Subnet) && maps.Equal(annotations(&a.Attrs), annotations(&b.Attrs))
}

// GetStoredMacAddresses returns the MAC addresses that this node has published for its VXLAN devices, so that they stay across restarts.
func (m *manager) GetStoredMacAddresses(context.Context) (v4, v6 string) {
	node, _ := m.node.Get()
	if node == nil {
		return "", ""
	}
	mac := func(key string) string {
		var data struct{ VtepMAC string }
		_ = json.Unmarshal([]byte(node.Annotations[key]), &data) // another backend's data has none
		return data.VtepMAC
	}
	return mac(backendDataKey), mac(backendV6DataKey)
}
