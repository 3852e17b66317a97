package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// fault is something that happens to a cluster and passes.
type fault struct {
	name string
	// do breaks something, waits, and mends what a person, or the end of a power cut, would mend. It returns the hosts
	// whose own clients cannot be served meanwhile, by the nature of the fault.
	do func(a *arena) (hurt []*hosts.Host)
}

var faults = []fault{
	{"leader-dies", leaderDies},
	{"follower-cut-off", followerCutOff},
	{"leader-cut-off", leaderCutOff},
	{"leader-cut-from-one", leaderCutFromOne},
	{"leader-freezes", leaderFreezes},
	{"disk-full", diskFull},
	{"wiped", wiped},
	{"all-die", allDie},
	{"rolling-restart", rollingRestart},
}

// often is what CI does not have the time for.
var often = []fault{
	{"follower-freezes", followerFreezes},
	{"leader-cut-one-way", leaderCutOneWay},
	{"packets-lost", packetsLost},
	{"halves-killed", halvesKilled},
	{"follower-dies", followerDies},
	{"two-die", twoDie},
	{"one-after-the-other", oneAfterTheOther},
}

// leaderDies pulls the plug of the host that leads etcd and that the agent's balancer uses, and boots it later.
func leaderDies(a *arena) []*hosts.Host {
	h := a.leader()
	if len(a.Agents) > 0 {
		h = a.usedBy(a.Agents[0])
		a.lead(h)
	}
	a.plug(h)
	time.Sleep(10 * time.Second)
	a.boot(h)
	return []*hosts.Host{h}
}

func followerDies(a *arena) []*hosts.Host {
	h := a.others(a.leader())[rand.IntN(2)]
	a.plug(h)
	time.Sleep(10 * time.Second)
	a.boot(h)
	return []*hosts.Host{h}
}

// twoDie leaves a server that can do nothing until one of the others is back.
func twoDie(a *arena) []*hosts.Host {
	all := a.others(a.Servers[rand.IntN(len(a.Servers))])
	for _, h := range all {
		a.plug(h)
	}
	time.Sleep(8 * time.Second)
	a.boot(all...)
	return a.Servers
}

// oneAfterTheOther pulls the next leader's plug while the one before is still starting.
func oneAfterTheOther(a *arena) []*hosts.Host {
	for range 3 {
		h := a.leader()
		a.plug(h)
		time.Sleep(time.Duration(2+rand.IntN(3)) * time.Second)
		a.boot(h)
		time.Sleep(time.Duration(rand.IntN(6)) * time.Second)
	}
	return a.Servers
}

func followerCutOff(a *arena) []*hosts.Host { return a.cutOff(a.others(a.leader())[0]) }

func leaderCutOff(a *arena) []*hosts.Host { return a.cutOff(a.leader()) }

func (a *arena) cutOff(h *hosts.Host) []*hosts.Host {
	a.Links.Isolate(h)
	time.Sleep(12 * time.Second)
	a.Links.Heal()
	return []*hosts.Host{h}
}

// leaderCutFromOne: the follower cannot win an election, and its API server cannot write. Its host's clients can.
func leaderCutFromOne(a *arena) []*hosts.Host {
	h := a.leader()
	a.Links.Cut(h, a.others(h)[0])
	time.Sleep(15 * time.Second)
	a.Links.Heal()
	return nil
}

func leaderCutOneWay(a *arena) []*hosts.Host {
	h := a.leader()
	a.Links.CutOneWay(h, a.others(h)[rand.IntN(2)])
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

// freeze stops all processes of a host for a while, which then go on as if nothing had happened.
func (a *arena) freeze(h *hosts.Host) []*hosts.Host {
	d := 20 * time.Second
	if a.long {
		d = time.Minute
	}
	h.Freeze()
	a.t.Logf("froze %s for %s", h.Name, d)
	time.Sleep(d)
	h.Thaw()
	return []*hosts.Host{h}
}

// diskFull fills the leader's disk, and kills the control plane's half, which has to start with that.
func diskFull(a *arena) []*hosts.Host {
	h := a.Servers[len(a.Servers)-1]
	a.lead(h)
	h.FillDisk()
	a.t.Logf("filled the disk of %s", h.Name)
	time.Sleep(6 * time.Second)
	a.killHalf(h, "control-plane")
	time.Sleep(6 * time.Second)
	h.FreeDisk()
	return []*hosts.Host{h}
}

// wiped is a server that is installed anew and joins as if it had never been there.
func wiped(a *arena) []*hosts.Host {
	h := a.others(a.leader())[rand.IntN(2)]
	if a.long {
		h = a.Servers[rand.IntN(len(a.Servers))]
	}
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
	return []*hosts.Host{h}
}

// allDie is a power cut.
func allDie(a *arena) []*hosts.Host {
	for _, h := range a.Servers {
		a.kill(h)
	}
	time.Sleep(time.Second)
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
		when, err := a.healed(began, []*hosts.Host{h}, time.Minute)
		if err != nil {
			a.t.Errorf("after %s was restarted: %v", h.Name, err)
		}
		a.t.Logf("restarted %s: stopped in %s, whole again after %s", h.Name, short(stopped.Sub(began)), short(when.Sub(stopped)))
	}
	return nil
}

// halvesKilled kills processes of coracle at random, on any server.
func halvesKilled(a *arena) []*hosts.Host {
	for range 6 {
		a.killHalf(a.Servers[rand.IntN(len(a.Servers))], []string{"control-plane", "control-plane", "node"}[rand.IntN(3)])
		time.Sleep(time.Duration(rand.IntN(4000)) * time.Millisecond)
	}
	return a.Servers
}

// chosen are the faults that the environment names, in its order, or all.
func chosen(t *testing.T) []fault {
	all := slices.Concat(faults, often)
	names := strings.Fields(os.Getenv("CORACLE_TEST_FAULTS"))
	if len(names) == 0 {
		return faults
	}
	var out []fault
	for _, name := range names {
		i := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
		if i < 0 {
			t.Fatalf("CORACLE_TEST_FAULTS: there is no fault %q", name)
		}
		out = append(out, all[i])
	}
	return out
}

// TestFaults breaks a cluster of three servers and an agent in one way after the other. CORACLE_TEST_FAULTS names some
// of the faults instead, in order. CORACLE_TEST_FAULT_ROUNDS is for long runs: so many times all, at random.
func TestFaults(t *testing.T) {
	hosts.Bin(t)
	list := chosen(t)
	rounds, _ := strconv.Atoi(os.Getenv("CORACLE_TEST_FAULT_ROUNDS"))
	if rounds > 0 {
		list = random(t, list, rounds)
	}
	a := newArena(t, 3, 1)
	a.long = rounds > 0
	for _, f := range list {
		if !t.Run(f.name, func(t *testing.T) { a.suffer(t, f) }) {
			break // the next one would find a cluster that is not whole
		}
	}
	t.Logf("%d faults: %s", a.runs, a.total)
}

// random is a list some times over, with what is not in it by default, shuffled.
func random(t *testing.T, list []fault, rounds int) []fault {
	if os.Getenv("CORACLE_TEST_FAULTS") == "" {
		list = slices.Concat(list, often)
	}
	list = slices.Repeat(list, rounds)
	seed, err := strconv.ParseUint(os.Getenv("CORACLE_TEST_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("CORACLE_TEST_SEED=%d", seed)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// TestOneServer kills the control plane's half of a lone server: the same clients and checks, without others.
func TestOneServer(t *testing.T) {
	hosts.Bin(t)
	a := newArena(t, 1, 0)
	a.suffer(t, fault{"killed", func(a *arena) []*hosts.Host {
		for range 3 {
			a.killHalf(a.Servers[0], "control-plane")
			time.Sleep(4 * time.Second)
		}
		return nil
	}})
}

// String is a verdict in one line.
func (v verdict) String() string {
	return fmt.Sprintf("%d writes acknowledged, %d unknown, %d lost; %d reads, %d stale; %d impossible histories, %d undecided",
		v.acknowledged, v.unknown, len(v.lost), v.reads, len(v.stale), len(v.impossible), len(v.undecided))
}
