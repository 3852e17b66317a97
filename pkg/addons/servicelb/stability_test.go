package servicelb

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// random is a cluster with few ports and many who want them.
func random(r *rand.Rand) snapshot {
	in := snapshot{now: time.Unix(5000, 0), lost: map[string]bool{}}
	for i := range 1 + r.IntN(4) {
		n := member(fmt.Sprintf("n%d", i), fmt.Sprintf("10.0.0.%d", i+1))
		if r.IntN(3) == 0 {
			internal(fmt.Sprintf("fd00::%d", i+1))(n)
		}
		if r.IntN(8) == 0 {
			external(fmt.Sprintf("192.0.2.%d", 1+r.IntN(2)))(n)
		}
		if r.IntN(6) == 0 {
			silent(n)
		}
		in.lost[n.Name] = r.IntN(8) == 0
		in.nodes = append(in.nodes, n)
	}
	for i := range 1 + r.IntN(6) {
		ports := []string{"80", "443", "80,443", "53/UDP", "53,53/UDP"}[r.IntN(5)]
		s := lb(fmt.Sprintf("s%d", i), r.IntN(4), ports)
		if r.IntN(4) == 0 {
			families(corev1.IPv4Protocol, corev1.IPv6Protocol)(s)
		}
		if r.IntN(3) == 0 {
			has(fmt.Sprintf("10.0.0.%d", 1+r.IntN(len(in.nodes))))(s)
		} else if r.IntN(3) == 0 { // its ports have changed
			hasOnly("10.0.0.1", []string{"80", "443", "53/UDP"}[r.IntN(3)])(s)
		}
		if r.IntN(8) == 0 {
			s.DeletionTimestamp = &s.CreationTimestamp
		}
		in.services = append(in.services, s)
	}
	return in
}

// step writes what a plan says, and forgets the Services that are released.
func step(in snapshot) (snapshot, plan) {
	p := in.plan(reserved)
	in.since, _ = remember(in.since, p.open, in.now)
	in.now = in.now.Add(answerTimeout)
	byUID := map[any]*corev1.Service{}
	for _, o := range p.outcomes {
		switch {
		case o.release:
			byUID[o.service.UID] = nil
		case !o.hold:
			byUID[o.service.UID] = applied(o)
		}
	}
	var next []*corev1.Service
	for _, s := range in.services {
		if changed, ok := byUID[s.UID]; !ok {
			next = append(next, s)
		} else if changed != nil {
			next = append(next, changed)
		}
	}
	in.services = next
	return in, p
}

// holdersOf are the Services that list each claim.
func holdersOf(services []*corev1.Service) map[claim][]string {
	l := allocation{listed: map[claim][]*request{}}
	_, all := snapshot{services: services}.read()
	for _, s := range all {
		l.note(s)
	}
	out := map[claim][]string{}
	for c, all := range l.listed {
		for _, s := range all {
			out[c] = append(out[c], s.Name)
		}
	}
	return out
}

func spelled(p plan) (out []string) {
	for _, o := range p.outcomes {
		out = append(out, o.service.Name+" "+told(o))
	}
	return out
}

func shuffle[T any](r *rand.Rand, all []T) {
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}

func FuzzPlan(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := random(r)
		shuffled := in
		shuffled.services, shuffled.nodes = slices.Clone(in.services), slices.Clone(in.nodes)
		shuffle(r, shuffled.services)
		shuffle(r, shuffled.nodes)
		if a, b := spelled(in.plan(reserved)), spelled(shuffled.plan(reserved)); !reflect.DeepEqual(a, b) {
			t.Fatalf("the order matters:\n%q\n%q", a, b)
		}
		settles(t, &in)
		claimed := holdersOf(in.services)
		for c, names := range claimed {
			if len(names) > 1 {
				t.Errorf("%v have %v", names, c)
			}
		}

		// A newcomer moves nobody.
		newcomer := lb("new", -10, "80,443,53/UDP")
		in.services = append(in.services, newcomer)
		in.since = nil
		settles(t, &in)
		for c, names := range claimed {
			if got := holdersOf(in.services)[c]; !slices.Contains(got, names[0]) {
				t.Errorf("a newcomer has moved %s away from %v; now it is %v's", names[0], c, got)
			}
		}

		// Neither does a loss, but for those who gain by it.
		before := holdersOf(in.services)
		gone := in.services[0].Name
		in.services = in.services[1:]
		settles(t, &in)
		for c, names := range before {
			if got := holdersOf(in.services)[c]; names[0] != gone && !slices.Contains(got, names[0]) {
				t.Errorf("the end of %s has moved %s away from %v", gone, names[0], c)
			}
		}
	})
}

// settles steps until nothing changes; two Services that newly share a claim are a mistake at every step.
func settles(t *testing.T, in *snapshot) {
	t.Helper()
	var last []string
	for range 12 {
		old := holdersOf(in.services)
		next, p := step(*in)
		*in = next
		for c, names := range holdersOf(in.services) {
			if len(names) > 1 && len(names) > len(old[c]) {
				t.Fatalf("%v came to share %v", names, c)
			}
		}
		now := spelled(p)
		if slices.Equal(now, last) {
			return
		}
		last = now
	}
	t.Fatalf("it does not settle: %q", last)
}

// BenchmarkPlan decides about many Services that have what they want, on many nodes.
func BenchmarkPlan(b *testing.B) {
	in := snapshot{now: time.Unix(5000, 0)}
	for i := range 50 {
		in.nodes = append(in.nodes, member(fmt.Sprintf("n%d", i), fmt.Sprintf("10.0.0.%d", i+1)))
	}
	for i := range 500 {
		in.services = append(in.services, lb(fmt.Sprintf("s%d", i), i, fmt.Sprintf("%d,%d", 10000+2*i, 10001+2*i)))
	}
	for range 3 { // questions, patience, addresses
		in, _ = step(in)
	}
	for b.Loop() {
		in.plan(reserved)
	}
}
