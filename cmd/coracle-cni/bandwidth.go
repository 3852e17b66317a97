package main

import (
	"encoding/json"
	"math"

	"github.com/containernetworking/cni/pkg/skel"
)

// rates are what a pod wants of the plugin bandwidth, in bits and bits per second. containerd writes the names with a capital.
type rates struct {
	IngressRate  uint64 `json:"ingressRate"`
	IngressBurst uint64 `json:"ingressBurst"`
	EgressRate   uint64 `json:"egressRate"`
	EgressBurst  uint64 `json:"egressBurst"`
}

// unlimited is the burst with which containerd passes on the rate of a pod's annotation: 512 MiB, which would come at full speed. The plugin takes no larger one.
const unlimited = math.MaxUint32

// Bounds of the burst that takes its place: a tenth of a second's worth, but at least what a rate of 10 Mbit/s has, which is more than the largest packet.
// The plugin bandwidth counts bursts in ticks of 64 ns, of which four minutes' worth fits into its 32 bits.
const (
	burstPerSecond = 10
	leastBurst     = 1 << 20 // bits
	longestBurst   = 200     // seconds
)

// burst is the burst that a pod may have at a rate.
func burst(rate uint64) uint64 {
	return min(unlimited, max(rate/burstPerSecond, min(leastBurst, rate*longestBurst)))
}

// bounded returns the same rates with bursts in which they hold.
func (r rates) bounded() rates {
	if r.IngressBurst == unlimited {
		r.IngressBurst = burst(r.IngressRate)
	}
	if r.EgressBurst == unlimited {
		r.EgressBurst = burst(r.EgressRate)
	}
	return r
}

// boundedVerbs are those of the plugin bandwidth in a list of plugins that is not coracle's.
func boundedVerbs(of skel.CNIFuncs) skel.CNIFuncs {
	change := func(verb func(*skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return verb(with(args, boundedConf(args.StdinData))) }
	}
	of.Add, of.Check, of.Del = change(of.Add), change(of.Check), change(of.Del)
	return of
}

// boundedConf is a plugin's configuration with bounded bursts, or the same if the runtime asks for no rates.
func boundedConf(data []byte) []byte {
	var conf, runtime map[string]json.RawMessage
	var asked *rates
	if json.Unmarshal(data, &conf) != nil || json.Unmarshal(conf["runtimeConfig"], &runtime) != nil ||
		json.Unmarshal(runtime["bandwidth"], &asked) != nil || asked == nil {
		return data
	}
	// What was read can be written.
	runtime["bandwidth"], _ = json.Marshal(asked.bounded())
	conf["runtimeConfig"], _ = json.Marshal(runtime)
	changed, _ := json.Marshal(conf)
	return changed
}
