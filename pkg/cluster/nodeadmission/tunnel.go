package nodeadmission

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/pkg/apis/core"
)

// Annotations of flannel by which other nodes reach this one's pods.
const (
	flannel          = "flannel.alpha.coreos.com/"
	publicIPKey      = flannel + "public-ip"
	publicIPv6Key    = flannel + "public-ipv6"
	backendDataKey   = flannel + "backend-data"
	backendV6DataKey = flannel + "backend-v6-data"
)

// checkFlannel refuses an address, a MAC address and a key of the pod network that are not the node's.
func (w *write) checkFlannel() error {
	was, now := w.annotationsBefore(), w.now.Annotations
	for _, key := range []string{publicIPKey, publicIPv6Key} {
		if now[key] == "" || now[key] == was[key] || slices.ContainsFunc(w.now.Status.Addresses, func(a core.NodeAddress) bool { return a.Address == now[key] }) {
			continue
		}
		if reason := w.refuses(now[key], core.NodeInternalIP); reason != "" {
			return fmt.Errorf("the pods of node %s cannot be reached at %s: %s", w.name, now[key], reason)
		}
	}
	for _, key := range []string{backendDataKey, backendV6DataKey} {
		if now[key] == "" || now[key] == was[key] {
			continue
		}
		own, err := tunnelOf(now[key])
		if err != nil {
			return fmt.Errorf("annotation %s of node %s: %w", key, w.name, err)
		}
		all, err := w.nodes.List(labels.Everything())
		if err != nil {
			return err
		}
		for _, n := range all {
			if n.Name != w.name && (own.meets(n.Annotations[backendDataKey]) || own.meets(n.Annotations[backendV6DataKey])) {
				return fmt.Errorf("node %s has %s in the pod network", n.Name, own)
			}
		}
	}
	return nil
}

// tunnel is what identifies a node in a backend's data: the MAC address of vxlan, or the public key of WireGuard. Other backends have none.
type tunnel struct {
	mac net.HardwareAddr
	key []byte
}

// tunnelOf parses a backend's data as flannel does, which accepts several spellings of one address or key.
func tunnelOf(text string) (t tunnel, err error) {
	var data struct{ VtepMAC, PublicKey *string }
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		return t, err
	}
	if data.VtepMAC != nil {
		t.mac, err = net.ParseMAC(*data.VtepMAC)
		if err != nil || len(t.mac) != 6 || t.mac[0]&1 != 0 || bytes.Equal(t.mac, make([]byte, 6)) {
			return t, fmt.Errorf("VtepMAC %.60q is not the MAC address of a device", *data.VtepMAC)
		}
	}
	if data.PublicKey != nil {
		t.key, err = base64.StdEncoding.DecodeString(*data.PublicKey)
		if err != nil || len(t.key) != 32 {
			return t, fmt.Errorf("PublicKey %.60q is not a key of WireGuard", *data.PublicKey)
		}
	}
	return t, nil
}

// meets reports whether another node's data has the same address or key.
func (t tunnel) meets(text string) bool {
	other, _ := tunnelOf(text) // what is not valid is nobody's
	return t.mac != nil && bytes.Equal(t.mac, other.mac) || t.key != nil && bytes.Equal(t.key, other.key)
}

func (t tunnel) String() string {
	if t.mac != nil {
		return t.mac.String()
	}
	return base64.StdEncoding.EncodeToString(t.key)
}
