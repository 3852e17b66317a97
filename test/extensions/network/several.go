package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
)

// several is a CNI plug-in that attaches pods to several networks, each with a configuration of its own, and leaves the work to their plug-ins.
type several struct {
	types.PluginConf
	// Network is the one of eth0.
	Network string `json:"network"`
	// Dir has the configurations of the networks.
	Dir string `json:"dir"`
	// Runtime is what containerd says of the pod.
	Runtime map[string]any `json:"runtimeConfig"`

	cni *libcni.CNIConfig
}

func parse(args *skel.CmdArgs) (several, error) {
	// What was attached to what is remembered in a directory of the plug-in's own: containerd has the same for the plug-in.
	s := several{cni: libcni.NewCNIConfigWithCacheDir(filepath.SplitList(args.Path), "/var/lib/cni/several", nil)}
	return s, json.Unmarshal(args.StdinData, &s)
}

// networks returns the network of eth0, and those that the pod's annotation names.
func (s several) networks() []string {
	annotations, _ := s.Runtime["io.kubernetes.cri.pod-annotations"].(map[string]any)
	more, _ := annotations["example.org/networks"].(string)
	return append([]string{s.Network}, strings.Fields(more)...)
}

func add(args *skel.CmdArgs) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	var first types.Result
	for i, name := range s.networks() {
		pod := &libcni.RuntimeConf{ContainerID: args.ContainerID, NetNS: args.Netns, IfName: args.IfName, CapabilityArgs: s.Runtime}
		if i > 0 {
			pod.IfName = fmt.Sprintf("net%d", i)
		}
		list, err := libcni.LoadNetworkConf(s.Dir, name)
		if err != nil {
			return err
		}
		result, err := s.cni.AddNetworkList(context.Background(), list, pod)
		if err != nil {
			return fmt.Errorf("network %s: %w", name, err) // containerd calls del for the networks before
		}
		if i == 0 {
			first = result // the pod's address is that of eth0
		}
	}
	return types.PrintResult(first, s.CNIVersion)
}

// each calls do for what a container is attached to, "" for all containers.
func (s several) each(container string, do func(*libcni.NetworkConfigList, *libcni.RuntimeConf) error) error {
	attached, err := s.cni.GetCachedAttachments(container)
	for _, a := range attached {
		list, errLoad := libcni.LoadNetworkConf(s.Dir, a.Network)
		if errLoad == nil {
			errLoad = do(list, &libcni.RuntimeConf{ContainerID: a.ContainerID, NetNS: a.NetNS, IfName: a.IfName, CapabilityArgs: a.CapabilityArgs})
		}
		err = errors.Join(err, errLoad)
	}
	return err
}

func del(args *skel.CmdArgs) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	known := false
	err = s.each(args.ContainerID, func(list *libcni.NetworkConfigList, pod *libcni.RuntimeConf) error {
		known, pod.NetNS = true, args.Netns // it may be gone
		return s.cni.DelNetworkList(context.Background(), list, pod)
	})
	if known || err != nil {
		return err
	}
	// The pod may be older than this plug-in's configuration.
	list, err := libcni.LoadNetworkConf(s.Dir, s.Network)
	if err != nil {
		return err
	}
	return s.cni.DelNetworkList(context.Background(), list, &libcni.RuntimeConf{ContainerID: args.ContainerID, NetNS: args.Netns, IfName: args.IfName, CapabilityArgs: s.Runtime})
}

func check(args *skel.CmdArgs) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	return s.each(args.ContainerID, func(list *libcni.NetworkConfigList, pod *libcni.RuntimeConf) error {
		return s.cni.CheckNetworkList(context.Background(), list, pod)
	})
}

// gc takes from the networks whom the runtime does not name.
func gc(args *skel.CmdArgs) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	lives := map[string]bool{}
	for _, a := range s.ValidAttachments {
		lives[a.ContainerID] = true
	}
	return s.each("", func(list *libcni.NetworkConfigList, pod *libcni.RuntimeConf) error {
		if lives[pod.ContainerID] {
			return nil
		}
		return s.cni.DelNetworkList(context.Background(), list, pod)
	})
}

// status is that of the network of eth0.
func status(args *skel.CmdArgs) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	list, err := libcni.LoadNetworkConf(s.Dir, s.Network)
	if err == nil {
		err = s.cni.GetStatusNetworkList(context.Background(), list)
	}
	if err != nil {
		return types.NewError(types.ErrPluginNotAvailable, fmt.Sprintf("network %s: %v", s.Network, err), "")
	}
	return nil
}
