package faults

import (
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// networkFaults are those that only the network has. `make test` has the first.
var networkFaults = []fault{
	{name: "reorder", do: reordered, asks: theAgent},
	{name: "idle-connections", do: idleConnections, asks: theAgent},
	{name: "duplicate", do: duplicated, asks: theAgent},
	{name: "loss", do: lossy, asks: theAgent},
	{name: "node-longer-than-a-certificate", do: nodeOutlives, asks: theFirstServer, after: renewed, patience: patienceOfOutlived},
	{name: "server-longer-than-a-certificate", do: serverOutlives, asks: theAgent, after: renewed, patience: patienceOfOutlived},
}

func theAgent(a *arena) *hosts.Host       { return a.Agents[0] }
func theFirstServer(a *arena) *hosts.Host { return a.Servers[0] }

// badly is how long a bad network lasts.
const badly = 10 * time.Second

func reordered(a *arena) []*hosts.Host {
	for _, h := range a.Hosts() {
		a.Links.Reorder(10+a.random.IntN(40), h)
	}
	return a.badNetwork()
}

func duplicated(a *arena) []*hosts.Host {
	for _, h := range a.Hosts() {
		a.Links.Duplicate(10+a.random.IntN(40), h)
	}
	return a.badNetwork()
}

// lossy loses 15 % of the packets between any two hosts, each way.
func lossy(a *arena) []*hosts.Host {
	all := a.Hosts()
	for i, h := range all {
		for _, other := range all[i+1:] {
			a.Links.Drop(15, h, other)
		}
	}
	return a.badNetwork()
}

// badNetwork lets a bad network last, and mends it.
func (a *arena) badNetwork() []*hosts.Host {
	time.Sleep(badly)
	a.Links.Heal()
	return nil
}
