package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
)

// chained is one of upstream's plugins that, in a list of plugins, comes after the one that makes the pod's interface. It is called within this
// process, and only for pods that want what it does.
type chained struct {
	kind     string // its CNI type
	verbs    skel.CNIFuncs
	settings map[string]any           // of its configuration
	wish     func(c conf) (any, bool) // what the pod wants, in the runtime's format, if it wants anything
}

// chain is the plugins in the order of ADD.
type chain []chained

func newChain(upstream map[string]skel.CNIFuncs) chain {
	return chain{
		{"portmap", upstream["portmap"], map[string]any{"backend": "nftables", "snat": true},
			func(c conf) (any, bool) {
				p := c.RuntimeConfig.PortMappings
				return map[string]any{"portMappings": p}, len(p) > 0
			}},
		{"bandwidth", upstream["bandwidth"], map[string]any{},
			func(c conf) (any, bool) {
				b := c.RuntimeConfig.Bandwidth
				if b == nil {
					return nil, false
				}
				return map[string]any{"bandwidth": b.bounded()}, true
			}},
	}
}

// add returns the last plugin's result.
func (c chain) add(conf conf, args *skel.CmdArgs, result []byte) (_ []byte, err error) {
	for _, next := range c {
		if result, err = next.add(conf, args, result); err != nil {
			return nil, err
		}
	}
	return result, nil
}

func (c chain) check(conf conf, args *skel.CmdArgs) error {
	for _, next := range c {
		if err := next.check(conf, args); err != nil {
			return err
		}
	}
	return nil
}

// del calls all plugins, also after an error.
func (c chain) del(conf conf, args *skel.CmdArgs) (err error) {
	for _, next := range slices.Backward(c) {
		err = errors.Join(err, next.del(conf, args))
	}
	return err
}

// add returns the result, which is that of the plugin before if the pod wants nothing.
func (p chained) add(c conf, args *skel.CmdArgs, before []byte) ([]byte, error) {
	own, err := p.conf(c, before)
	if own == nil || err != nil {
		return before, err
	}
	return printed(func() error { return p.verbs.Add(with(args, own)) })
}

func (p chained) check(c conf, args *skel.CmdArgs) error {
	own, err := p.later(c)
	if own == nil || err != nil {
		return err
	}
	return p.verbs.Check(with(args, own))
}

func (p chained) del(c conf, args *skel.CmdArgs) error {
	own, err := p.later(c)
	if own == nil || err != nil {
		return err
	}
	if err := p.verbs.Del(with(args, own)); err != nil {
		return fmt.Errorf("%s: %w", p.kind, err)
	}
	return nil
}

// later is the configuration after ADD.
func (p chained) later(c conf) (json.RawMessage, error) {
	result, err := c.previous()
	if err != nil {
		return nil, err
	}
	return p.conf(c, result)
}

// conf is the plugin's configuration, nil if the pod wants nothing of it.
func (p chained) conf(c conf, result json.RawMessage) (json.RawMessage, error) {
	wish, ok := p.wish(c)
	if !ok {
		return nil, nil
	}
	own := map[string]any{"cniVersion": c.CNIVersion, "name": c.Name, "type": p.kind, "runtimeConfig": wish}
	for key, value := range p.settings {
		own[key] = value
	}
	if result != nil {
		own["prevResult"] = result
	}
	data, err := json.Marshal(own)
	if err != nil {
		return nil, fmt.Errorf("writing the configuration of %s: %w", p.kind, err)
	}
	return data, nil
}
