package main

import (
	"math"
	"testing"
)

// TestBurst: a rate holds from the start. A burst has room for the largest packet, and fits into the kernel's 32 bits of ticks of 64 ns.
func TestBurst(t *testing.T) {
	for rate, want := range map[uint64]uint64{1_000: 200_000, 1_000_000: 1 << 20, 16_000_000: 1_600_000, 1e9: 1e8, 1e12: math.MaxUint32, 1e15: math.MaxUint32} {
		got := burst(rate)
		if got != want {
			t.Errorf("at %d bits/s the burst is %d bits, not %d", rate, got, want)
		}
		if ticks := float64(got) / float64(rate) * 1e9 / 64; ticks > math.MaxUint32 {
			t.Errorf("at %d bits/s the burst is %.0f ticks", rate, ticks)
		}
	}
}

// TestBoundedConf: what containerd makes of an annotation is bounded, and everything else is left.
func TestBoundedConf(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{`{"name":"own","runtimeConfig":{"bandwidth":{"IngressRate":16000000,"IngressBurst":4294967295,"EgressRate":0,"EgressBurst":0},"mac":"x"}}`,
			`{"name":"own","runtimeConfig":{"bandwidth":{"ingressRate":16000000,"ingressBurst":1600000,"egressRate":0,"egressBurst":0},"mac":"x"}}`},
		{`{"runtimeConfig":{"bandwidth":{"egressBurst":4294967295,"egressRate":1000}}}`,
			`{"runtimeConfig":{"bandwidth":{"ingressRate":0,"ingressBurst":0,"egressRate":1000,"egressBurst":200000}}}`},
		{`{"runtimeConfig":{"bandwidth":{"ingressRate":1000,"ingressBurst":5,"egressRate":0,"egressBurst":0}}}`,
			`{"runtimeConfig":{"bandwidth":{"ingressRate":1000,"ingressBurst":5,"egressRate":0,"egressBurst":0}}}`},
		{`{"ingressRate": 1000, "ingressBurst": 4294967295}`, `{"ingressRate": 1000, "ingressBurst": 4294967295}`},
		{`{"runtimeConfig":{"bandwidth":null}}`, `{"runtimeConfig":{"bandwidth":null}}`},
		{`nonsense`, `nonsense`},
	} {
		if got := string(boundedConf([]byte(c.given))); got != c.want {
			t.Errorf("%s becomes\n%s, not\n%s", c.given, got, c.want)
		}
	}
}
