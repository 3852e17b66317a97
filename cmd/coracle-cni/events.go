package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/cnievents"
)

// How long to wait for the node to have put network policies in force, and to have heard that a pod is gone.
const (
	addTimeout = 60 * time.Second
	delTimeout = 5 * time.Second
)

// podArgs are the kubelet's names of a pod, as the runtime passes them on.
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE types.UnmarshallableString //nolint:revive // the names are the runtime's
	K8S_POD_NAME      types.UnmarshallableString //nolint:revive
	K8S_POD_UID       types.UnmarshallableString //nolint:revive
}

// announce tells the node of a pod that is about to get a link, and waits until network policies hold for its addresses.
func (c conf) sendAdd(args *skel.CmdArgs, ips []*current.IPConfig) error {
	if c.PolicySocket == "" {
		return nil
	}
	pod := podArgs{CommonArgs: types.CommonArgs{IgnoreUnknown: true}}
	if err := types.LoadArgs(args.Args, &pod); err != nil {
		return fmt.Errorf("reading which pod it is: %w", err)
	}
	n := cnievents.Event{Verb: cnievents.Add, Sandbox: args.ContainerID,
		Namespace: string(pod.K8S_POD_NAMESPACE), Name: string(pod.K8S_POD_NAME), UID: string(pod.K8S_POD_UID)}
	for _, ip := range ips {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return fmt.Errorf("leased address %v is none", ip.Address.IP)
		}
		n.IPs = append(n.IPs, addr.Unmap())
	}
	if err := cnievents.Send(c.PolicySocket, n, addTimeout); err != nil {
		return fmt.Errorf("putting network policies in force: %w", err)
	}
	return nil
}

// farewell tells that a pod's link is gone. If nobody hears it, the pod that gets the address next says it.
func (c conf) sendDel(args *skel.CmdArgs) {
	if c.PolicySocket != "" {
		_ = cnievents.Send(c.PolicySocket, cnievents.Event{Verb: cnievents.Del, Sandbox: args.ContainerID}, delTimeout)
	}
}

// inventory tells which pods there are, as gc is told.
func (c conf) sendKeep() {
	if c.PolicySocket == "" {
		return
	}
	n := cnievents.Event{Verb: cnievents.Keep}
	for _, a := range c.ValidAttachments {
		n.Sandboxes = append(n.Sandboxes, a.ContainerID)
	}
	_ = cnievents.Send(c.PolicySocket, n, delTimeout)
}
