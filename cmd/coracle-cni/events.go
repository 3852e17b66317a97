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

// How long to wait until the node has put network policies in force, and until it has noted a deleted pod.
const (
	addTimeout = 60 * time.Second
	delTimeout = 5 * time.Second
)

// podArgs are the CNI_ARGS with which the runtime passes the kubelet's names of a pod.
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE types.UnmarshallableString //nolint:revive // the names are the runtime's
	K8S_POD_NAME      types.UnmarshallableString //nolint:revive
	K8S_POD_UID       types.UnmarshallableString //nolint:revive
}

// sendAdd reports a pod before it gets an interface, and waits until network policies are in force for its addresses.
func (c conf) sendAdd(args *skel.CmdArgs, ips []*current.IPConfig) error {
	if c.PolicySocket == "" {
		return nil
	}
	pod := podArgs{CommonArgs: types.CommonArgs{IgnoreUnknown: true}}
	if err := types.LoadArgs(args.Args, &pod); err != nil {
		return fmt.Errorf("reading CNI_ARGS: %w", err)
	}
	n := cnievents.Event{Verb: cnievents.Add, Sandbox: args.ContainerID,
		Namespace: string(pod.K8S_POD_NAMESPACE), Name: string(pod.K8S_POD_NAME), UID: string(pod.K8S_POD_UID)}
	for _, ip := range ips {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return fmt.Errorf("leased address %v is invalid", ip.Address.IP)
		}
		n.IPs = append(n.IPs, addr.Unmap())
	}
	if err := cnievents.Send(c.PolicySocket, n, addTimeout); err != nil {
		return fmt.Errorf("putting network policies in force: %w", err)
	}
	return nil
}

// sendDel reports that the interface of a pod is gone. Errors do not matter: the sendAdd of the next pod with the address replaces it.
func (c conf) sendDel(args *skel.CmdArgs) {
	if c.PolicySocket != "" {
		_ = cnievents.Send(c.PolicySocket, cnievents.Event{Verb: cnievents.Del, Sandbox: args.ContainerID}, delTimeout)
	}
}

// sendKeep reports the pods that the runtime passes to GC as valid.
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
