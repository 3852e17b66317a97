package acme

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
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
		if n := count[namespace]; n < maxFirstOrders/4 {
			t.Errorf("namespace %s has %d orders of %d", namespace, n, maxFirstOrders)
		}
	}
	if total := count["a"] + count["b"] + count["c"] + count["d"]; total != maxFirstOrders || count["a"] > maxNamespaceOrders || at != began.Add(time.Hour) {
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
	next, _ := b.Next([]Candidate{c}, later)
	if next == nil {
		t.Fatal("it is not gone on with")
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

// TestBlocked: what people can change in the cluster is looked at again soon, told once, and no failure.
func TestBlocked(t *testing.T) {
	b, now, c := new(Book), time.Now(), candidate("shop", "taken", "a.test")
	for i := range 10 {
		next, at := b.Next([]Candidate{c}, now)
		if next == nil {
			now = at
			continue
		}
		if _, news := b.Blocked(*next, "it is another's", now); news != (i == 0) {
			t.Errorf("news: %v at %d", news, i)
		}
	}
	if why, again := b.Problem(c, now); why != "it is another's" || again.Sub(now) > lookAgain || b.Alternative(c) {
		t.Errorf("%q until %s", why, again)
	}
}

// TestClockThatWasAhead: what was written then keeps nobody waiting.
func TestClockThatWasAhead(t *testing.T) {
	b, now, c := new(Book), time.Now(), candidate("shop", "web", "a.test")
	ahead := now.Add(365 * 24 * time.Hour)
	if _, err := b.Begin(c, ahead); err != nil {
		t.Fatal(err)
	}
	b.Refused(c, "no", false, ahead)
	b.Unreachable(c, "no", ahead)
	b = again(t, b)
	if next, at := b.Next([]Candidate{c}, now); next == nil {
		t.Errorf("it waits until %s", at)
	}
}
