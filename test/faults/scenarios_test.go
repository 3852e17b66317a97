package faults

import (
	"strings"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// fault is a failure that happens to a cluster and ends.
type fault struct {
	name string
	// do breaks something, waits, and repairs what a person, or the end of a power cut, would repair. It returns the
	// hosts whose own clients cannot be served meanwhile because of the fault.
	do func(a *arena) (hurt []*hosts.Host)
	// stops says that the fault leaves no majority: nobody can be served while it lasts.
	stops bool
	// asks is the host from which /readyz is asked for meanwhile; nil if nobody asks.
	asks func(a *arena) *hosts.Host
	// patience is how long the cluster may take to become healthy without help; 0 for the usual time.
	patience time.Duration
	// after waits for what else must be well afterwards; it may be nil.
	after func(a *arena, hurt []*hosts.Host)
	// undone returns the requests without those that the fault is meant to undo; nil returns all. began is the history's begin.
	undone func(began time.Time, ops []op) []op
}

// left returns the requests of a history, begun at began, that the fault does not undo.
func (f fault) left(began time.Time, ops []op) []op {
	if f.undone == nil {
		return ops
	}
	return f.undone(began, ops)
}

// faults are those of every `make test`.
var faults = []fault{
	{name: "leader-dies", do: leaderDies},
	{name: "follower-cut-off", do: followerCutOff},
	{name: "leader-cut-off", do: leaderCutOff},
	{name: "leader-cut-from-one", do: leaderCutFromOne},
	{name: "leader-freezes", do: leaderFreezes},
	{name: "disk-full", do: diskFull},
	{name: "wiped", do: wiped},
	{name: "all-die", do: allDie, stops: true},
	{name: "rolling-restart", do: rollingRestart},
}

// others are run only by `make faults`.
var others = []fault{
	{name: "follower-freezes", do: followerFreezes},
	{name: "leader-cut-one-way", do: leaderCutOneWay},
	{name: "packets-lost", do: packetsLost},
	{name: "children-killed", do: childrenKilled},
	{name: "follower-dies", do: followerDies},
	{name: "two-die", do: twoDie, stops: true},
	{name: "one-after-the-other", do: oneAfterTheOther, stops: true},
	{name: "wiped-without-quorum", do: wipedWithoutQuorum, stops: true},
	{name: "joins-interrupted", do: joinsInterrupted},
	{name: "all-wiped-in-turn", do: allWipedInTurn},
	{name: "leader-disk-stalls", do: leaderDiskStalls},
}

// leaderDies pulls the plug of the host that leads etcd and that the agent's balancer uses, and boots it later.
func leaderDies(a *arena) []*hosts.Host {
	h := a.leader()
	if len(a.Agents) > 0 {
		h = a.usedBy(a.Agents[0])
		a.lead(h)
	}
	a.plug(h)
	a.awaitServed()
	a.boot(h)
	return []*hosts.Host{h}
}

func followerDies(a *arena) []*hosts.Host {
	h := a.others(a.leader())[a.random.IntN(2)]
	a.plug(h)
	time.Sleep(10 * time.Second)
	a.boot(h)
	return []*hosts.Host{h}
}

// twoDie leaves a server without a quorum until one of the others is back.
func twoDie(a *arena) []*hosts.Host {
	all := a.others(a.Servers[a.random.IntN(len(a.Servers))])
	for _, h := range all {
		a.plug(h)
	}
	time.Sleep(8 * time.Second)
	a.boot(all...)
	return a.Servers
}

// oneAfterTheOther unplugs the next leader while the previous one is still starting.
func oneAfterTheOther(a *arena) []*hosts.Host {
	for range 3 {
		h := a.leader()
		a.plug(h)
		time.Sleep(time.Duration(2+a.random.IntN(3)) * time.Second)
		a.boot(h)
		time.Sleep(time.Duration(a.random.IntN(6)) * time.Second)
	}
	return a.Servers
}

func followerCutOff(a *arena) []*hosts.Host { return a.cutOff(a.others(a.leader())[0]) }

func leaderCutOff(a *arena) []*hosts.Host { return a.cutOff(a.leader()) }

func (a *arena) cutOff(h *hosts.Host) []*hosts.Host {
	a.Links.Isolate(h)
	a.awaitServed(h)
	a.awaitLeaderless(h)
	a.Links.Heal()
	return []*hosts.Host{h}
}

// leaderCutFromOne: the follower cannot win an election, and its API server cannot write. Its host's clients can.
func leaderCutFromOne(a *arena) []*hosts.Host {
	h := a.leader()
	follower := a.others(h)[0]
	a.Links.Cut(h, follower)
	a.awaitLeaderless(follower)
	a.awaitServed()
	a.Links.Heal()
	return nil
}

func leaderCutOneWay(a *arena) []*hosts.Host {
	h := a.leader()
	a.Links.CutOneWay(h, a.others(h)[a.random.IntN(2)])
	time.Sleep(15 * time.Second)
	a.Links.Heal()
	return nil
}

func packetsLost(a *arena) []*hosts.Host {
	for i, h := range a.Servers {
		a.Links.Drop(15, h, a.Servers[(i+1)%len(a.Servers)])
	}
	time.Sleep(20 * time.Second)
	a.Links.Heal()
	return nil
}

func leaderFreezes(a *arena) []*hosts.Host { return a.freeze(a.leader()) }

func followerFreezes(a *arena) []*hosts.Host { return a.freeze(a.others(a.leader())[1]) }

// freeze stops all processes of a host for a while; then they continue.
func (a *arena) freeze(h *hosts.Host) []*hosts.Host {
	h.Freeze()
	a.t.Logf("froze %s", h.Name)
	a.awaitServed(h)
	a.awaitOtherControllers(h)
	if a.long {
		time.Sleep(time.Minute)
	}
	h.Thaw()
	return []*hosts.Host{h}
}

// diskFull fills the leader's disk and kills its control plane, which has to start with a full disk.
func diskFull(a *arena) []*hosts.Host {
	h := a.Servers[len(a.Servers)-1]
	a.lead(h)
	h.FillDisk()
	a.t.Logf("filled the disk of %s", h.Name)
	a.awaitServed(h)
	restarts := a.Running(h).Restarts()
	a.killChild(h, "control-plane")
	a.awaitStart(h, restarts)
	h.FreeDisk()
	return []*hosts.Host{h}
}

// leaderDiskStalls lets no flush of the leader's disk end for 1 to 8 seconds. Another member may lead etcd then, but the leader of the
// controllers stays. The last stall may be longer than they wait.
func leaderDiskStalls(a *arena) []*hosts.Host {
	h := a.Servers[len(a.Servers)-1]
	if a.disk == nil {
		a.t.Skip("the disk of the last server stalls only in the long part")
	}
	a.leadControllers(h)
	for n, most := range []time.Duration{3, 6, 8, 10} {
		a.lead(h)
		stall := most*time.Second - time.Duration(a.random.IntN(1500))*time.Millisecond
		a.disk.Stall(stall)
		time.Sleep(stall)
		now, err := a.controllers(h)
		a.t.Logf("stalled for %s: %s leads the controllers (%v)", short(stall), now, err)
		if n < 3 && (err != nil || !strings.Contains(now, h.Name)) {
			a.t.Errorf("after a stall of %s %s leads the controllers (%v)", short(stall), now, err)
		}
		a.awaitServed()
	}
	return []*hosts.Host{h}
}

// wiped reinstalls a server, which joins like a new one.
func wiped(a *arena) []*hosts.Host {
	h := a.others(a.leader())[a.random.IntN(2)]
	if a.long {
		h = a.Servers[a.random.IntN(len(a.Servers))]
	}
	a.wipe(h)
	return []*hosts.Host{h}
}

// wipe reinstalls a server and starts coracle, which joins any of the others.
func (a *arena) wipe(h *hosts.Host) {
	a.kill(h)
	h.Wipe()
	a.t.Logf("wiped %s", h.Name)
	if h == a.Servers[0] {
		a.args[h.Name] = []string{"--server=https://" + a.Servers[1].IP.String() + ":6443"}
	}
	h.Boot()
	a.Provision(h)
	a.Start(h)
	a.gates[h.Name].set(false)
}

// wipedWithoutQuorum lets a server join while there is no quorum: another server must return first.
func wipedWithoutQuorum(a *arena) []*hosts.Host {
	dead := a.Servers[len(a.Servers)-1]
	a.plug(dead)
	a.wipe(a.Servers[1])
	time.Sleep(8 * time.Second)
	a.boot(dead)
	return a.Servers
}

// allWipedInTurn replaces every original machine of the cluster, beginning with the first one.
func allWipedInTurn(a *arena) []*hosts.Host {
	for _, h := range a.Servers {
		began := time.Now()
		a.wipe(h)
		if _, err := a.healed(began, []*hosts.Host{h}, patience); err != nil {
			a.t.Errorf("after %s was wiped: %v", h.Name, err)
		}
	}
	return a.Servers
}

// joinsInterrupted unplugs a server repeatedly while it joins.
func joinsInterrupted(a *arena) []*hosts.Host {
	h := a.Servers[1]
	a.wipe(h)
	for range 4 {
		time.Sleep(time.Duration(500+a.random.IntN(4000)) * time.Millisecond)
		a.plug(h)
		a.boot(h)
	}
	return []*hosts.Host{h}
}

// allDie is a power cut.
func allDie(a *arena) []*hosts.Host {
	for _, h := range a.Servers {
		a.kill(h)
	}
	a.boot(a.Servers...)
	return a.Servers
}

// rollingRestart restarts coracle on one server after the other, as upgrades do.
func rollingRestart(a *arena) []*hosts.Host {
	for _, h := range a.Servers {
		began := time.Now()
		if err := a.Running(h).Stop(); err != nil {
			a.t.Errorf("stopping %s: %v", h.Name, err)
		}
		stopped := time.Now()
		a.Start(h)
		when, err := a.healed(began, []*hosts.Host{h}, patience)
		if err != nil {
			a.t.Errorf("after %s was restarted: %v", h.Name, err)
		}
		a.t.Logf("restarted %s: stopped in %s, whole again after %s", h.Name, short(stopped.Sub(began)), short(when.Sub(stopped)))
	}
	return nil
}

// childrenKilled kills processes of coracle at random, on any server.
func childrenKilled(a *arena) []*hosts.Host {
	for range 6 {
		a.killChild(a.Servers[a.random.IntN(len(a.Servers))], []string{"control-plane", "control-plane", "node"}[a.random.IntN(3)])
		time.Sleep(time.Duration(a.random.IntN(4000)) * time.Millisecond)
	}
	return a.Servers
}
