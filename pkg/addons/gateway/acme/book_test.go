package acme

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func candidate(namespace, name string, hosts ...string) Candidate {
	return Candidate{Secret: namespace + "/" + name, Namespace: namespace, Hosts: hosts}
}

// again returns the book as another server reads it.
func again(t *testing.T, b *Book) *Book {
	t.Helper()
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	read := new(Book)
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	return read
}

// TestFailingHost: a host that fails is tried a few times in the first hour, then less often, whatever Secret names it and whoever leads.
func TestFailingHost(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b, now := new(Book), start
	var tries []time.Duration
	for i := 0; now.Sub(start) < 48*time.Hour; i++ {
		b = again(t, b)
		all := []Candidate{candidate("shop", fmt.Sprint(i), "a.test")} // each time another Secret
		next, at := b.Next(all, now)
		if next == nil {
			now = at
			continue
		}
		tries = append(tries, now.Sub(start))
		if _, err := b.Begin(*next, now); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
		if until := b.Refused(*next, "no such name", false, now); until.Before(now.Add(firstWait)) {
			t.Errorf("tried again after %s", until.Sub(now))
		}
	}
	hour := 0
	for _, at := range tries {
		if at < time.Hour {
			hour++
		}
	}
	if hour < 2 || hour > 4 || len(tries) < 8 || len(tries) > 14 {
		t.Errorf("tries after %s", tries)
	}
	if why, at := b.Problem(candidate("shop", "x", "a.test"), now); why != "no such name" || !at.After(now.Add(-lastWait)) {
		t.Errorf("%q, %s", why, at)
	}
}

// TestLimits: no namespace has more than its orders in an hour, all together have no more than theirs, and renewals come through.
func TestLimits(t *testing.T) {
	b, now := new(Book), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var all []Candidate
	for i := range 200 {
		for _, namespace := range []string{"a", "b", "c", "d"} {
			host := fmt.Sprintf("h%d.%s.test", i, namespace)
			all = append(all, candidate(namespace, host, host))
		}
	}
	renewed := candidate("e", "old", "old.test")
	renewed.Leaf = &x509.Certificate{NotBefore: now.Add(-3 * time.Hour), NotAfter: now.Add(time.Hour)}
	count := map[string]int{}
	order := func(all []Candidate) (at time.Time) {
		for {
			next, at := b.Next(all, now)
			if next == nil {
				return at
			}
			count[next.Namespace]++
			if _, err := b.Begin(*next, now); err != nil {
				t.Fatal(err)
			}
			b.Refused(*next, "no", false, now)
			now = now.Add(time.Second)
		}
	}
	began := now
	at := order(all)
	for _, namespace := range []string{"a", "b", "c", "d"} {
		if n := count[namespace]; n < (maxFirstOrders-ordersForFew)/4 {
			t.Errorf("namespace %s has %d orders of %d", namespace, n, maxFirstOrders-ordersForFew)
		}
	}
	if total := count["a"] + count["b"] + count["c"] + count["d"]; total != maxFirstOrders-ordersForFew || count["a"] > maxNamespaceOrders || at != began.Add(time.Hour) {
		t.Errorf("%v orders; the next one after %s", count, at.Sub(began))
	}
	order(append(all, renewed))
	if count["e"] != 1 {
		t.Error("a renewal waits for others' new hosts")
	}
	one := new(Book)
	b, count, now = one, map[string]int{}, began
	order(all[:1])
	var mine []Candidate
	for i := range 100 {
		mine = append(mine, candidate("a", fmt.Sprint(i), fmt.Sprintf("n%d.test", i)))
	}
	order(mine)
	if count["a"] != maxNamespaceOrders {
		t.Errorf("%d orders of a namespace", count["a"])
	}
}

// TestOpenOrder: a server that comes to lead goes on with the order that the last one has placed, and waits if it cannot know whether one was.
func TestOpenOrder(t *testing.T) {
	b, now := new(Book), time.Now()
	c := candidate("shop", "shop", "a.test", "b.test")
	first, err := b.Begin(c, now)
	if err != nil {
		t.Fatal(err)
	}
	key := first.Key
	if next, at := again(t, b).Next([]Candidate{c}, now); next != nil || at.Before(now.Add(firstWait)) {
		t.Errorf("an order that may have been placed is placed again at %s", at)
	}
	first.URL = "https://acme.test/order/1"
	b = again(t, b)
	later := now.Add(time.Second)
	renewal := candidate("shop", "old", "c.test")
	renewal.Leaf = &x509.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Minute)}
	next, _ := b.Next([]Candidate{renewal, c, renewal}, later)
	if next == nil || next.Secret != c.Secret {
		t.Fatalf("it is not gone on with: %+v", next)
	}
	if same, err := b.Begin(*next, later); err != nil || same.URL != first.URL || same.Key != key || len(b.Orders["shop"]) != 1 {
		t.Errorf("%+v %v", same, err)
	}
	leaf := &x509.Certificate{NotBefore: now, NotAfter: now.Add(90 * 24 * time.Hour)}
	b.Succeeded(c, leaf, later)
	c.Leaf = leaf
	if next, at := b.Next([]Candidate{c}, later); next != nil || at != now.Add(60*24*time.Hour) || b.Open != nil {
		t.Errorf("renewed at %s", at)
	}
	c.Leaf = nil // the Secret is deleted
	if next, at := b.Next([]Candidate{c}, later); next != nil || at != later.Add(afterSuccess) {
		t.Errorf("ordered again at %s", at)
	}
}

// TestUnreachable: while the ACME server cannot be asked, nothing is, and the hosts' failures do not count.
func TestUnreachable(t *testing.T) {
	b, now := new(Book), time.Now()
	a, other := candidate("shop", "a", "a.test"), candidate("shop", "b", "b.test")
	for range 20 {
		next, at := b.Next([]Candidate{a, other}, now)
		if next == nil {
			if at.Sub(now) > lastServerTry*6/5 {
				t.Fatalf("it waits for %s", at.Sub(now))
			}
			now = at
			continue
		}
		if _, err := b.Begin(*next, now); err != nil {
			t.Fatal(err)
		}
		b.Unreachable(*next, "no route", now)
	}
	if b.Hosts["a.test"].Failures != 0 || b.Server.Failures < 5 {
		t.Errorf("%+v", b)
	}
	if why, _ := b.Problem(other, now); why != "no route" {
		t.Errorf("%q", why)
	}
}

// TestSize: the book fits into a Secret whatever fails, and what one namespace has in it drops nothing of another.
func TestSize(t *testing.T) {
	b, now := new(Book), time.Now()
	b.Refused(candidate("shop", "shop", "shop.test"), "no", false, now)
	for _, why := range []string{strings.Repeat("\"", 4000), strings.Repeat("<", 4000), strings.Repeat("\u2028", 4000), strings.Repeat("\x00", 4000), strings.Repeat("\xff", 4000), strings.Repeat("é", 4000)} {
		for i := range 50 {
			c := candidate("evil", "evil")
			for n := range 20 {
				c.Hosts = append(c.Hosts, fmt.Sprintf("%0230d.%s.test", 20*i+n, fmt.Sprintf("%x", why[:8])))
			}
			b.Refused(c, why, true, now)
			b.Unreachable(c, why, now)
		}
	}
	later := now.Add(time.Minute)
	b.Next(nil, later)
	text, err := json.Marshal(b)
	if err != nil || len(text) > 900<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if len(b.Hosts) != maxHostsKept || b.Hosts["shop.test"].Failures != 1 {
		t.Errorf("%d hosts, of shop %+v", len(b.Hosts), b.Hosts["shop.test"])
	}
}

// TestGreedy: namespaces that want more orders than there are leave some to those that want few, of first certificates and of what they pass off as renewals.
func TestGreedy(t *testing.T) {
	for _, leaf := range []*x509.Certificate{nil, {NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1, 0)}} {
		b, now := new(Book), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		var all []Candidate
		for i := range 300 {
			c := candidate(fmt.Sprintf("evil-%d", i%6), fmt.Sprint(i), fmt.Sprintf("h%d.test", i))
			c.Leaf = leaf
			all = append(all, c)
		}
		order := func(all []Candidate) (count int) {
			for {
				next, _ := b.Next(all, now)
				if next == nil {
					return count
				}
				if _, err := b.Begin(*next, now); err != nil {
					t.Fatal(err)
				}
				b.Refused(*next, "no", false, now)
				now = now.Add(time.Second)
				count++
			}
		}
		greedy := order(all)
		if mine := order([]Candidate{candidate("shop", "shop", "shop.test"), candidate("shop", "more", "more.test")}); leaf == nil && mine != 2 {
			t.Errorf("%d orders are left after %d of others", mine, greedy)
		}
		renewal := candidate("blog", "blog", "blog.test")
		renewal.Leaf = &x509.Certificate{NotBefore: now.Add(-3 * time.Hour), NotAfter: now.Add(time.Hour)}
		if order([]Candidate{renewal}) != 1 {
			t.Errorf("no renewal after %d orders of others", greedy)
		}
	}
}

// TestClockThatWasAhead: what was written then keeps nobody waiting.
func TestClockThatWasAhead(t *testing.T) {
	b, now, c := new(Book), time.Now(), candidate("shop", "web", "a.test")
	ahead := now.Add(365 * 24 * time.Hour)
	for range maxNamespaceOrders {
		if _, err := b.Begin(c, ahead); err != nil {
			t.Fatal(err)
		}
		b.Refused(c, "no", false, ahead)
	}
	b.Unreachable(c, "no", ahead)
	b = again(t, b)
	if next, at := b.Next([]Candidate{c}, now); next == nil {
		t.Errorf("it waits until %s", at)
	}
}
