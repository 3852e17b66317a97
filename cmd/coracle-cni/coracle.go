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
	"github.com/coracle-dev/coracle/pkg/network/portguard"
)

// errNoBridge is the error in a build without the upstream plugins.
var errNoBridge = errors.New("this build of coracle-cni has no bridge plugin; build with `make build`")

func coracleMain() {
	upstream := verbs()
	bridge, ok := upstream["bridge"]
	p := plugin{bridge: bridge, chain: newChain(upstream), quiet: ignoreRouters, port: bridgefilter.Attach, guard: portguard.Add, unguard: portguard.Remove, tidy: portguard.Tidy}
	funcs := skel.CNIFuncs{Add: p.add, Check: p.check, Del: p.del, GC: p.gc, Status: p.status}
	if !ok {
		funcs.Add = func(*skel.CmdArgs) error { return errNoBridge }
	}
	skel.PluginMainFuncs(funcs, version.All, "coracle: the pod network of a coracle node")
}

// plugin is the CNI type "coracle": it leases an address of the node's pod subnet, derives the pod's MAC from it, and calls the bridge
// plugin within this process for the rest, and then portmap and bandwidth for pods that want what they do: executing them for each pod, as
// a list of plugins does, takes 3 ms of processor time each.
type plugin struct {
	bridge skel.CNIFuncs
	chain  chain
	// These are ignoreRouters, bridgefilter.Attach and functions of package portguard, except in tests.
	quiet          func(netns, name string)
	port           func(bridge, port string) error
	guard, unguard func(portguard.Port) error
	tidy           func() error
}

// add waits for the node's subnet: the CNI configuration is written before the node has one, because containerd looks for it only every
// five seconds.
func (p plugin) add(args *skel.CmdArgs) (err error) {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	subnet, err := awaitSubnet(c.SubnetFile, subnetWait)
	if err != nil {
		return err
	}
	leased, err := c.leases().take(args.ContainerID, args.IfName, subnet.PodCIDRs)
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
	p.quiet(args.Netns, args.IfName)
	port, err := portguard.PortOf(answer, c.Bridge)
	if err != nil {
		return err
	}
	if !portguard.Exempt(c.RuntimeConfig.Annotations) {
		if err := p.guard(port); err != nil {
			return err
		}
	}
	if c.PolicySocket != "" {
		if err := p.port(c.Bridge, port.Name); err != nil {
			return err
		}
	}
	if answer, err = p.chain.add(c, args, answer); err != nil {
		return err
	}
	_, err = os.Stdout.Write(answer)
	return err
}

// printed returns the standard output of do, because a runtime cannot read an error after a result. No other goroutine may use os.Stdout
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

// del works without a subnet file, and repeatedly. It removes the interface before the lease, so that the address is not leased again
// while this pod still has it.
func (p plugin) del(args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	return p.undo(c, args)
}

func (p plugin) undo(c conf, args *skel.CmdArgs) error {
	chained := p.chain.del(c, args)
	if p.bridge.Del != nil {
		delegated, err := c.delegate(0, nil)
		if err != nil {
			return err
		}
		if err := p.bridge.Del(with(args, delegated)); err != nil {
			return errors.Join(chained, fmt.Errorf("removing the pod's link: %w", err))
		}
	}
	p.release(c)
	c.sendDel(args)
	if chained != nil {
		return chained // a host port may still lead to the address: the runtime tries again
	}
	return c.leases().release(args.ContainerID, args.IfName)
}

// release removes the addresses of the pod's port, which is gone. Only the previous result names it, which there is not after an ADD that failed, also one
// of the next plugins. Errors do not matter: no other port gets the name.
func (p plugin) release(c conf) {
	result, err := c.previous()
	if err != nil {
		return
	}
	if result == nil {
		_ = p.tidy()
		return
	}
	if port, err := portguard.PortOf(result, c.Bridge); err == nil {
		_ = p.unguard(port)
	}
}

func (p plugin) check(args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	if p.bridge.Check == nil {
		return errNoBridge
	}
	if err := c.leases().check(args.ContainerID, args.IfName); err != nil {
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
	if err := p.bridge.Check(with(args, delegated)); err != nil {
		return err
	}
	return p.chain.check(c, args)
}

// gc releases the leases of containers that the runtime does not list.
func (p plugin) gc(args *skel.CmdArgs) error {
	c, err := parseConf(args.StdinData)
	if err != nil {
		return err
	}
	c.sendKeep()
	return c.leases().keepOnly(c.ValidAttachments)
}

// status succeeds without a subnet file: add waits for it.
func (p plugin) status(args *skel.CmdArgs) error {
	_, err := parseConf(args.StdinData)
	return err
}

// with returns args with another configuration.
func with(args *skel.CmdArgs, conf json.RawMessage) *skel.CmdArgs {
	out := *args
	out.StdinData = conf
	return &out
}
