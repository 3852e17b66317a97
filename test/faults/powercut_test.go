package faults

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// TestPowerCuts cuts the power of a server under load, while it starts, and while it imports an image; `make faults` also right after its
// very first start, after a backup was restored, and within and after an upgrade.
func TestPowerCuts(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	var o, installed *outage // the latter as a service, for upgrades
	c := verdicts.Class{Name: "server-power-cut", Kinds: []string{"under-load", "in-start", "in-import"}, Short: 1, Long: 36}
	if verdicts.Long() {
		c.Kinds = append(c.Kinds, "after-install", "after-restore", "after-upgrade")
	}
	c.Each(t, func(sub *testing.T, kind string, seed uint64, row *verdicts.Row) {
		if kind == "after-upgrade" {
			installed = afterUpgrade(t, sub, installed, seed, row)
			return
		}
		if o != nil && (o.broken || kind == "after-install") {
			o.end()
			o = nil
		}
		if o == nil {
			if o = newOutage(t, options{}); kind != "after-install" {
				o.well()
			}
		}
		o.t, o.broken = sub, true // until all is well
		if kind == "after-restore" {
			o.restore()
		}
		random := rand.New(rand.NewPCG(seed, uint64(len(kind))))
		intact := func() error { return nil }
		v := o.suffer(sub, fault{name: "power-" + kind, stops: true, do: func(a *arena) []*hosts.Host {
			pause(random, 2*time.Second)
			if kind == "in-import" {
				intact = o.addImage(seed)
				pause(random, 2*time.Second)
			}
			o.cut(random)
			if kind == "in-start" {
				pause(random, 4*time.Second)
				o.cut(random)
			}
			return a.Servers
		}}, normal)
		row.Acknowledged, row.Lost, row.Gap = v.acknowledged, len(v.lost), v.gap.Seconds()
		for _, problem := range v.problems() {
			sub.Error(problem)
		}
		began := time.Now()
		o.well()
		o.await("the image that was imported is whole", intact)
		row.Seconds = (v.whole + time.Since(began)).Seconds()
		o.broken = sub.Failed()
	})
}

// afterUpgrade cuts the power at a random moment from the begin of an upgrade on: of three runs two in its first 15 seconds, and one in the
// first 60. It returns the server, which the next run takes.
func afterUpgrade(t, sub *testing.T, o *outage, seed uint64, row *verdicts.Row) *outage {
	if o == nil || o.broken {
		if o != nil {
			o.end()
		}
		o = newOutage(t, options{service: true})
		o.begin()
	}
	o.t, o.broken = sub, true // until all is well
	random := rand.New(rand.NewPCG(seed, 3))
	most := 15 * time.Second
	if seed%3 == 0 {
		most = time.Minute
	}
	v := o.suffer(sub, fault{name: "power-after-upgrade", stops: true, undone: o.undone, do: func(a *arena) []*hosts.Host {
		ended := make(chan error, 1)
		go func() { ended <- o.upgrade() }()
		pause(random, most)
		o.cut(random)
		<-ended
		o.await("no upgrade is pending", o.settled)
		row.Seen = string(o.trial().Phase)
		return a.Servers
	}}, normal)
	row.Acknowledged, row.Lost, row.Gap = v.acknowledged, len(v.lost), v.gap.Seconds()
	for _, problem := range v.problems() {
		sub.Error(problem)
	}
	began := time.Now()
	o.well()
	if err := o.tidy(); err != nil {
		sub.Error(err)
	}
	row.Seconds = (v.whole + time.Since(began)).Seconds()
	o.broken = sub.Failed()
	return o
}
