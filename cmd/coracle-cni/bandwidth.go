package main

import (
	"encoding/json"
	"maps"
	"strconv"

	"github.com/containernetworking/cni/pkg/skel"
)

// unlimited is the burst in bits with which containerd passes on the rate of a pod's annotation: 512 MiB, which would come at full speed.
const unlimited = "4294967295"

// Bounds of the burst that takes its place: a tenth of a second's worth, but at least what a rate of 10 Mbit/s has, which is more than the largest packet.
// The plugin bandwidth counts bursts in ticks of 64 ns, of which four minutes' worth fits into its 32 bits.
const (
	burstPerSecond = 10
	leastBurst     = 1 << 20 // bits
	longestBurst   = 200     // seconds
)

// burst is the burst in bits that a pod may have at a rate in bits per second.
func burst(rate uint64) uint64 {
	return max(rate/burstPerSecond, min(leastBurst, rate*longestBurst))
}

// bounded returns what the runtime asks of the plugin bandwidth, with bursts in which the rates hold.
func bounded(asked map[string]json.RawMessage) map[string]json.RawMessage {
	out := maps.Clone(asked)
	for _, direction := range []string{"ingress", "egress"} {
		rate, err := strconv.ParseUint(string(asked[direction+"Rate"]), 10, 64)
		if err == nil && string(asked[direction+"Burst"]) == unlimited {
			out[direction+"Burst"] = strconv.AppendUint(nil, burst(rate), 10)
		}
	}
	return out
}

// boundedVerbs are those of the plugin bandwidth in a list of plugins that is not coracle's.
func boundedVerbs(of skel.CNIFuncs) skel.CNIFuncs {
	change := func(verb func(*skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return verb(with(args, boundedConf(args.StdinData))) }
	}
	of.Add, of.Check, of.Del = change(of.Add), change(of.Check), change(of.Del)
	return of
}

// boundedConf is a plugin's configuration with bounded bursts, or the same if nothing is asked.
func boundedConf(data []byte) []byte {
	var conf, runtime, asked map[string]json.RawMessage
	if json.Unmarshal(data, &conf) != nil || json.Unmarshal(conf["runtimeConfig"], &runtime) != nil || json.Unmarshal(runtime["bandwidth"], &asked) != nil {
		return data
	}
	// What was read can be written.
	runtime["bandwidth"], _ = json.Marshal(bounded(asked))
	conf["runtimeConfig"], _ = json.Marshal(runtime)
	changed, _ := json.Marshal(conf)
	return changed
}
