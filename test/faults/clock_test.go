package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/machine/upgrade"
	"github.com/coracle-dev/coracle/test/clocks"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// timed is a cluster whose hosts have clocks of their own. It has a pod on each node.
type timed struct {
	*arena
	clocks map[string]*clocks.Clock // by host
	random *rand.Rand
}

// newTimed makes a cluster in which all clocks show the same time at first.
func newTimed(t *testing.T, f clockFault) *timed {
	at := f.began
	if at.IsZero() {
		at = time.Now()
	}
	x := &timed{clocks: map[string]*clocks.Clock{}}
	x.arena = newArenaOf(t, hosts.Plan{Servers: f.servers, Agents: f.agents, Service: f.service, Images: true, Clocks: true}, func(h *hosts.Host) {
		c := x.clocks[h.Name]
		if c == nil {
			c = clocks.New(t)
			c.Set(at)
			x.clocks[h.Name] = c
		}
		c.Give(h)
	})
	x.Servers[0].Apply(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: app}, spec: {selector: {matchLabels: {app: app}}, template: {
		metadata: {labels: {app: app}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: app, image: "coracle.test/busybox:1", command: [sh, -c, "trap exit TERM; sleep 99999 & wait"]}]}}}}`)
	x.await("a pod runs on each node", func() error { return x.podsRun(nil) })
	return x
}

// anyOrder calls do for all hosts at once, or for one after the other.
func (x *timed) anyOrder(do func(h *hosts.Host)) {
	all := x.Hosts()
	x.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	apart := time.Duration(x.random.IntN(2)) * time.Second
	for i, h := range all {
		if i > 0 && apart > 0 {
			pause(x.random, 5*apart)
		}
		do(h)
		x.t.Logf("%s: it is %s", h.Name, x.clocks[h.Name].Now().UTC().Format(time.DateTime))
	}
}

// clockFault is a kind of trouble with clocks.
type clockFault struct {
	servers, agents int
	service         bool      // coracle is installed as a service
	began           time.Time // what the clocks show at first, now if it is zero
	do              func(x *timed)
}

// day is how far clocks jump.
const day = 24 * time.Hour

// clockFaults are the kinds by name.
func clockFaults() map[string]clockFault {
	jump := func(by time.Duration) func(*timed) {
		return func(x *timed) { x.anyOrder(func(h *hosts.Host) { x.clocks[h.Name].Jump(by) }) }
	}
	return map[string]clockFault{
		"starts-in-1970":   {servers: 1, agents: 1, do: startsIn1970},
		"fresh-in-1970":    {servers: 1, agents: 1, began: clocks.Epoch, do: timeArrives},
		"day-forward":      {servers: 1, agents: 1, do: jump(day)},
		"day-back":         {servers: 1, agents: 1, do: jump(-day)},
		"13-months-off":    {servers: 1, agents: 1, do: monthsOff},
		"drift":            {servers: 3, agents: 1, do: drift},
		"suspend-in-trial": {servers: 1, service: true, do: suspendInTrial},
		"new-authorities":  {servers: 3, agents: 1, do: authoritiesWithWrongClocks},
	}
}

// startsIn1970 boots machines without a battery for their clocks: the server, and often the agent too.
func startsIn1970(x *timed) {
	booted := x.Hosts()
	if x.random.IntN(3) == 0 {
		booted = x.Servers
	}
	for _, h := range booted {
		x.kill(h)
		x.clocks[h.Name].Set(clocks.Epoch)
	}
	x.boot(booted...)
	pause(x.random, 20*time.Second)
	for _, h := range booted {
		x.await("doctor names the clock of "+h.Name, func() error {
			return prints(h, "1970-01-01, which is before the first release", "doctor", "--only", "clock")
		})
	}
	timeArrives(x)
}

// prints returns an error unless a command prints a text. Its exit code does not matter.
func prints(h *hosts.Host, text string, command ...string) error {
	out, err := h.TryCoracle(command...)
	if !strings.Contains(out, text) {
		return fmt.Errorf("coracle %s lacks %q: %s %v", strings.Join(command, " "), text, out, err)
	}
	return nil
}

// timeArrives sets all clocks right.
func timeArrives(x *timed) {
	x.anyOrder(func(h *hosts.Host) { x.clocks[h.Name].Set(time.Now()) })
}

// monthsOff turns all machines off for 13 months, longer than certificates are valid. The agent has no token any more.
func monthsOff(x *timed) {
	for _, h := range x.Agents {
		if err := os.Remove(h.Path("/etc/coracle/token")); err != nil {
			x.t.Fatal(err)
		}
	}
	for _, h := range x.Hosts() {
		x.kill(h)
		x.clocks[h.Name].Jump(13 * 30 * day)
	}
	x.boot(x.Agents...)
	for _, h := range x.Agents {
		x.await("status and doctor name what "+h.Name+" waits for", func() error {
			return errors.Join(prints(h, "this node's certificate has expired", "status"), prints(h, "restart coracle, which renews it at a server", "doctor", "--only", "certificates"))
		})
	}
	x.boot(x.Servers...)
}

// drift lets the clocks of all machines go apart, by up to two minutes and while clients work, and sets them right.
func drift(x *timed) {
	var stops []func()
	for _, h := range x.Hosts() {
		c := x.clocks[h.Name]
		c.Jump(time.Duration(x.random.IntN(240)-120) * time.Second)
		stops = append(stops, c.Slew(time.Duration(x.random.IntN(1000)-500)*time.Millisecond))
	}
	x.awaitServed()
	<-time.After(20 * time.Second) // in which they go on
	for _, stop := range stops {
		stop()
	}
	x.awaitServed()
	timeArrives(x)
}

// authoritiesWithWrongClocks replaces all authorities while the clocks of machines differ by up to four minutes and jump, and a server loses power.
func authoritiesWithWrongClocks(x *timed) {
	skew := func(h *hosts.Host) { x.clocks[h.Name].Jump(time.Duration(x.random.IntN(120)-60) * time.Second) }
	for _, h := range x.Hosts() {
		skew(h)
	}
	server, lost := x.Servers[0], x.Servers[1+x.random.IntN(2)]
	replaced := make(chan error, 1)
	replace := func() {
		_, err := server.TryCoracle("certificate", "rotate-ca")
		replaced <- err
	}
	go replace()
	pause(x.random, 4*time.Second)
	x.kill(lost)
	for _, h := range x.Hosts() {
		if h != lost {
			skew(h)
		}
	}
	pause(x.random, 10*time.Second)
	x.boot(lost)
	hosts.Eventually(x.t, 3*patience, func() error { // a command waits two minutes for a server
		err := <-replaced
		if err != nil {
			x.t.Log(err)
			go replace()
		}
		return err
	})
	timeArrives(x)
	for _, h := range x.Hosts() {
		x.await("all certificates of "+h.Name+" are new", h.FormerlySigned)
	}
}

// suspendInTrial suspends the machine for hours while an upgrade tries the new version: nothing runs, and the clock has gone on. The monotonic
// clock, which a suspend stops, goes on for a few seconds.
func suspendInTrial(x *timed) {
	h := x.Servers[0]
	ended := make(chan error, 1)
	go func() {
		_, err := h.TryCoracle("upgrade", "--insecure-unsigned", "--hold=5s", hosts.Next(x.t))
		ended <- err
	}()
	x.await("a trial runs", func() error {
		if s, _, err := upgrade.Read(h.Data()); err != nil || s.Phase != upgrade.Trial {
			return errors.Join(err, errors.New("no trial runs: "+s.Text()))
		}
		return nil
	})
	pause(x.random, 5*time.Second)
	h.Freeze()
	asleep := time.Hour + time.Duration(x.random.Int64N(int64(day)))
	pause(x.random, 5*time.Second)
	x.clocks[h.Name].Jump(asleep)
	h.Thaw()
	x.t.Logf("slept for %s", asleep)
	err := <-ended
	if s, _, unread := upgrade.Read(h.Data()); err != nil || unread != nil || s.Phase != upgrade.Committed {
		x.t.Errorf("the upgrade: %v; %s", errors.Join(err, unread), s.Text())
	}
}

// limit is the time in which all must be well again.
const limit = 2 * time.Minute

// TestClocks gives the machines of a cluster wrong clocks while clients write, and sets them right.
func TestClocks(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	all := clockFaults()
	kinds := []string{"day-back"}
	if verdicts.Long() {
		kinds = []string{"day-back", "starts-in-1970", "day-forward", "fresh-in-1970", "13-months-off", "drift", "suspend-in-trial", "new-authorities"}
	}
	list := os.Getenv("CORACLE_TEST_FAULTS")
	if list != "" {
		kinds = slices.DeleteFunc(strings.Fields(list), func(k string) bool { _, ok := all[k]; return !ok })
	}
	var x *timed
	verdicts.Class{Name: "clock", Kinds: kinds, Short: 1, Long: 5}.Each(t, func(sub *testing.T, kind string, seed uint64, row *verdicts.Row) {
		f := all[kind]
		if x != nil && (verdicts.Long() || list != "" || x.broken) {
			x.end() // each has a new cluster, with certificates of these clocks
			x = nil
		}
		if x == nil {
			x = newTimed(t, f)
		}
		x.t, x.broken = sub, true // until all is well
		x.random = rand.New(rand.NewPCG(seed, uint64(len(kind))))
		var before map[string]string
		var ended time.Time
		v := x.suffer(sub, fault{name: "clock-" + kind, stops: true, do: func(*arena) []*hosts.Host {
			f.do(x)
			before, ended = x.renewals(), time.Now()
			return nil
		}}, normal)
		row.Acknowledged, row.Lost, row.Gap = v.acknowledged, len(v.lost), v.gap.Seconds()
		for _, problem := range v.problems() {
			sub.Error(problem)
		}
		x.well(before)
		row.Seconds = time.Since(ended).Seconds()
		if took := time.Since(ended); took > limit {
			sub.Errorf("all was well again after %s, of at most %s", short(took), limit)
		}
		x.broken = sub.Failed()
	})
}
