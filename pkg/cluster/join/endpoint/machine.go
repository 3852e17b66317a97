package endpoint

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
)

// machineAnnotation of a claim holds a Machine in JSON.
const machineAnnotation = "coracle.io/machine"

// Machine is what a machine was permitted to say of itself when it joined with a token. A renewal does not change it.
type Machine struct {
	Key       string            `json:"key"` // the claim's holder; otherwise this is about a former one
	Server    bool              `json:"server,omitempty"`
	Addresses []netip.Addr      `json:"addresses"`
	External  []netip.Addr      `json:"external,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// MachineOf returns the machine of a claim. known is false for one that joined when this was not recorded yet.
func MachineOf(claim *coordinationv1.Lease) (m Machine, known bool) {
	err := json.Unmarshal([]byte(claim.Annotations[machineAnnotation]), &m)
	if err != nil || m.Key != holder(claim) {
		return Machine{}, false
	}
	return m, true
}

// Limits of what a machine may say of itself. All of it is recorded in its claim, whose annotations have 256 KiB: one that is full could not be
// revoked.
const (
	maxLabels    = 64
	maxAddresses = 16
)

// checkMachine refuses labels that Kubernetes would refuse, addresses that are none, and too many of them.
func checkMachine(req join.Request) error {
	if len(req.Labels) > maxLabels || len(req.Addresses) > maxAddresses || len(req.External) > maxAddresses {
		return newRefusal(http.StatusBadRequest, "a machine can join with at most %d labels, %d addresses and %[2]d external addresses", maxLabels, maxAddresses)
	}
	for key, value := range req.Labels {
		if wrong := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(wrong) > 0 {
			return newRefusal(http.StatusBadRequest, "%.300q=%.100q is not a label: %s", key, value, wrong[0])
		}
	}
	for _, ip := range slices.Concat(req.Addresses, req.External) {
		if !ip.IsValid() || ip.Zone() != "" {
			return newRefusal(http.StatusBadRequest, "%.100q is not an IP address without a zone", ip)
		}
	}
	return nil
}

// joinsAs is what the token of a request permits: all of a server; of an agent its labels and internal addresses, and external ones only if
// the request comes from them. Whether somebody else has an address is checked when the Node gets it.
func joinsAs(r *http.Request, who caller, req join.Request, key string) Machine {
	m := Machine{Key: key, Addresses: req.Addresses, Labels: req.Labels}
	if who.in(join.GroupServer) {
		m.External, m.Server = req.External, r.URL.Path == join.PathServer
	}
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && slices.Contains(req.External, from.Addr().Unmap()) {
		m.External = append(m.External, from.Addr().Unmap())
	}
	return m
}

// record writes the machine into its claim. A machine of a release before tells nothing to record.
func (c Claims) record(ctx context.Context, name string, m Machine) error {
	if len(m.Addresses) == 0 {
		return nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return c.edit(ctx, name, func(claim *coordinationv1.Lease) error {
		if holder(claim) != m.Key || claim.Annotations[machineAnnotation] == string(text) {
			return errUnchanged
		}
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, machineAnnotation, string(text))
		return nil
	})
}
