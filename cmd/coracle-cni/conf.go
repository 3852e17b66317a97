package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/coracle-dev/coracle/cmd/coracle-cni/leased"
	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/cnievents"
)

// conf is the plugin's configuration. An MTU of 0 means the MTU of the subnet file.
type conf struct {
	types.NetConf
	Bridge     string `json:"bridge"`
	SubnetFile string `json:"subnetFile"`
	DataDir    string `json:"dataDir"` // of host-local: leases are files in a directory with the name of the network
	MTU        int    `json:"mtu,omitempty"`
	// PolicySocket is the socket on which the node puts network policies in force for a pod, see package cnievents; "" is none.
	PolicySocket  string `json:"policySocket,omitempty"`
	RuntimeConfig struct {
		Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"` // portguard.AnnotationsCapability
		// What the pod wants of the plugins portmap and bandwidth.
		PortMappings []json.RawMessage `json:"portMappings"`
		Bandwidth    *rates            `json:"bandwidth"`
	} `json:"runtimeConfig"`
}

// result is the result of an IPAM plugin.
type result = current.Result

func parseConf(data []byte) (conf, error) {
	var c conf
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("reading network configuration: %w", err)
	}
	for _, required := range []struct{ key, value string }{
		{"name", c.Name}, {"bridge", c.Bridge}, {"subnetFile", c.SubnetFile}, {"dataDir", c.DataDir},
	} {
		if required.value == "" {
			return c, fmt.Errorf("network configuration: %q is missing", required.key)
		}
	}
	return c, nil
}

// bridgeConf is the configuration of the bridge plugin.
type bridgeConf struct {
	CNIVersion       string          `json:"cniVersion"`
	Name             string          `json:"name"`
	Type             string          `json:"type"`
	Bridge           string          `json:"bridge"`
	IsDefaultGateway bool            `json:"isDefaultGateway"`
	ForceAddress     bool            `json:"forceAddress"` // the node may have been given another subnet
	HairpinMode      bool            `json:"hairpinMode"`  // a pod reaches itself through its Service
	MTU              int             `json:"mtu,omitempty"`
	IPAM             *leased.IPAM    `json:"ipam,omitempty"`
	RuntimeConfig    runtimeConf     `json:"runtimeConfig"`
	DNS              types.DNS       `json:"dns,omitzero"`
	PrevResult       json.RawMessage `json:"prevResult,omitempty"`
}

type runtimeConf struct {
	MAC string `json:"mac,omitempty"`
}

// previous is the result of ADD, nil if the runtime has none: before it was successful.
func (c conf) previous() (json.RawMessage, error) {
	if c.RawPrevResult == nil {
		return nil, nil
	}
	result, err := json.Marshal(c.RawPrevResult)
	if err != nil {
		return nil, fmt.Errorf("writing previous result: %w", err)
	}
	return result, nil
}

// delegate returns the configuration of the bridge plugin. Without addresses bridge handles the interface only. They are leased before, because
// the MAC depends on the address, and bridge sets the MAC before it runs IPAM.
func (c conf) delegate(mtu int, addresses *result) (json.RawMessage, error) {
	b := bridgeConf{
		CNIVersion: c.CNIVersion, Name: c.Name, Type: "bridge", Bridge: c.Bridge,
		IsDefaultGateway: true, ForceAddress: true, HairpinMode: true,
		MTU: c.MTU, DNS: c.DNS,
	}
	if b.MTU == 0 {
		b.MTU = mtu
	}
	var err error
	if b.PrevResult, err = c.previous(); err != nil {
		return nil, err
	}
	if addresses != nil {
		b.IPAM = &leased.IPAM{Type: leased.Type, Result: addresses}
		b.RuntimeConfig.MAC = mac(addresses.IPs)
	}
	return json.Marshal(b)
}

// mac derives the MAC of a pod from its address, so that a later pod with the same address has the same MAC and the host's neighbour
// entry stays valid. With a random MAC the pod would be unreachable until the entry expires, for more than 20 s.
func mac(ips []*current.IPConfig) string {
	hw := net.HardwareAddr{0x0a, 0x58, 0, 0, 0, 0} // locally administered
	for _, ip := range ips {
		if v4 := ip.Address.IP.To4(); v4 != nil {
			copy(hw[2:], v4)
			return hw.String()
		}
	}
	for _, ip := range ips {
		hash := fnv.New32a()
		hash.Write(ip.Address.IP)
		hash.Sum(hw[:2])
		return hw.String()
	}
	return ""
}

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
