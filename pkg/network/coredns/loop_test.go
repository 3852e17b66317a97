package coredns

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
)

// TestSilentUpstreamIsNoLoop: a probe that is sent again and again, because nobody answers, has not come back.
func TestSilentUpstreamIsNoLoop(t *testing.T) {
	t.Parallel()
	asked := make(chan bool, 16)
	silent := plugin.HandlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		asked <- true
		return dns.RcodeSuccess, nil
	})
	l := &loop{Handler: silent, probe: "probe.coracle-loop-probe."}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		_, _ = l.ServeDNS(context.Background(), w, r)
	})}
	go func() { _ = server.ActivateAndServe() }()
	defer server.Shutdown()
	stop := make(chan struct{})
	defer close(stop)
	go l.ask(packets.LocalAddr().String(), stop)
	for range loopAfter {
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatal("the probe was not sent again")
		}
	}
	if l.found.Load() {
		t.Error("it is taken for a loop")
	}
}

// TestLimit: above the limit a query is answered at once, but the probe of loop passes, which would not find a loop otherwise.
func TestLimit(t *testing.T) {
	count := 0
	next := plugin.HandlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		count++
		return dns.RcodeSuccess, nil
	})
	all := &forwarded{free: 2}
	block := &limit{Handler: next, all: all}
	l := &loop{Handler: block, probe: "probe.coracle-loop-probe."}
	ask := func(name string) (int, error) {
		return l.ServeDNS(context.Background(), nil, new(dns.Msg).SetQuestion(name, dns.TypeA))
	}
	for range 2 { // each gives its place back
		if rcode, err := ask("example.com."); rcode != dns.RcodeSuccess || err != nil {
			t.Fatalf("answer is %d, %v", rcode, err)
		}
	}
	if !block.take() {
		t.Fatal("no place although all are free")
	}
	// An error beside the code would make the cache plugin keep the failure, although a place is free again at once.
	if rcode, err := ask("example.com."); rcode != dns.RcodeServerFailure || err != nil {
		t.Errorf("above the limit the answer is %d, %v", rcode, err)
	}
	if rcode, _ := ask("probe.coracle-loop-probe."); rcode != dns.RcodeSuccess || count != 3 {
		t.Errorf("the probe gets %d, %d queries were forwarded", rcode, count)
	}
}

// TestLimitOfABlock: blocks whose upstreams do not answer leave places to another one.
func TestLimitOfABlock(t *testing.T) {
	all := &forwarded{free: 1000}
	if got := fill(&limit{all: all}); got != 500 {
		t.Errorf("a block alone gets %d places, want 500", got)
	}
	fill(&limit{all: all})
	other := &limit{all: all}
	if got := fill(other); got < 100 {
		t.Errorf("beside two blocks that wait another one gets %d places", got)
	}
	for other.taken > 0 {
		other.put()
	}
	if all.free != 250 {
		t.Errorf("%d places are free, want 250", all.free)
	}
}

// fill takes places until there are none, and returns their number.
func fill(l *limit) (n int) {
	for l.take() {
		n++
	}
	return n
}
