package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sync/errgroup"

	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/bridgefilter"
	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
)

// errNoBridge is what the plugin says in a build without the upstream plugins.
var errNoBridge = errors.New("this build of coracle-cni has no bridge plugin; build with `make build`")

func coracleMain() {
	verbs, ok := bridgeVerbs()
	p := plugin{bridge: verbs, port: bridgefilter.Attach}
	funcs := skel.CNIFuncs{Add: p.add, Check: p.check, Del: p.del, GC: p.gc, Status: p.status}
	if !ok {
		funcs.Add = func(*skel.CmdArgs) error { return errNoBridge }
	}
	skel.PluginMainFuncs(funcs, version.All, "coracle: the pod network of a coracle node")
}

// plugin is CNI type "coracle": it leases an address out of the node's pod subnet, derives the pod's MAC from it,
// and has the bridge plugin do the rest within this process.
type plugin struct {
	bridge skel.CNIFuncs
	port   func(bridge, netns, ifName string) error // prepares the port of a pod for network policies
}

// add waits for the node's subnet, because the CNI configuration is in place before the node has one: the kubelet
// looks for it only every five seconds.
func (p plugin) add(args *skel.CmdArgs) (err error) {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	subnet, err := awaitSubnet(c.SubnetFile, subnetWait)
	if err != nil {
		return err
	}
	leased, err := leases{c.DataDir, c.Name}.take(args.ContainerID, args.IfName, subnet.PodCIDRs)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.undo(c, args))
		}
	}()
	if err := c.sendAdd(args, leased.IPs); err != nil {
		return err
	}
	delegated, err := c.delegate(subnet.MTU, leased)
	if err != nil {
		return err
	}
	answer, err := printed(func() error { return p.bridge.Add(with(args, delegated)) })
	if err != nil {
		return err
	}
	if c.PolicySocket != "" {
		if err := p.port(c.Bridge, args.Netns, args.IfName); err != nil {
			return err
		}
	}
	_, err = os.Stdout.Write(answer)
	return err
}

// printed returns what do prints: a runtime does not understand an error that comes after a result. Nothing else runs
// meanwhile.
func printed(do func() error) ([]byte, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("holding back the result: %w", err)
	}
	defer r.Close()
	var out []byte
	var all errgroup.Group
	all.Go(func() (err error) {
		out, err = io.ReadAll(r)
		return err
	})
	stdout := os.Stdout
	os.Stdout = w
	err = do()
	os.Stdout = stdout
	err = errors.Join(err, w.Close(), all.Wait())
	return out, err
}

// del works without a subnet file and more than once. The link goes before the lease, so that the address is not
// given to another pod while this one still answers for it.
func (p plugin) del(args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	return p.undo(c, args)
}

func (p plugin) undo(c conf, args *skel.CmdArgs) error {
	if p.bridge.Del != nil {
		delegated, err := c.delegate(0, nil)
		if err != nil {
			return err
		}
		if err := p.bridge.Del(with(args, delegated)); err != nil {
			return fmt.Errorf("removing the pod's link: %w", err)
		}
	}
	c.sendDel(args)
	return leases{c.DataDir, c.Name}.release(args.ContainerID, args.IfName)
}

func (p plugin) check(args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	if p.bridge.Check == nil {
		return errNoBridge
	}
	if err := (leases{c.DataDir, c.Name}).check(args.ContainerID, args.IfName); err != nil {
		return err
	}
	subnet, err := podsubnet.Read(c.SubnetFile)
	if err != nil {
		return fmt.Errorf("reading the node's pod subnet: %w", err)
	}
	delegated, err := c.delegate(subnet.MTU, &result{})
	if err != nil {
		return err
	}
	return p.bridge.Check(with(args, delegated))
}

// gc releases the leases of containers that the runtime no longer knows.
func (p plugin) gc(args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	c.sendKeep()
	return leases{c.DataDir, c.Name}.keepOnly(c.ValidAttachments)
}

// status does not ask for a subnet: pods may be added before there is one, and wait for it.
func (p plugin) status(args *skel.CmdArgs) error {
	_, err := parseConf(args.StdinData)
	return err
}

// with returns args for another configuration.
func with(args *skel.CmdArgs, conf json.RawMessage) *skel.CmdArgs {
	out := *args
	out.StdinData = conf
	return &out
}
