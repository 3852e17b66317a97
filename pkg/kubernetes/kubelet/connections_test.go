package kubelet

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/sockets"
)

// TestSurplus: of a source that has too many connections those go that have said least; others, and this machine's own, stay.
func TestSurplus(t *testing.T) {
	connect := func(from string, n int, said uint64) (all []connection) {
		for range n {
			all = append(all, connection{from: netip.MustParseAddrPort(from), said: said})
		}
		return all
	}
	all := append(connect("192.0.2.1:1", 4, 3000), connect("192.0.2.1:2", 5, 0)...)
	all = append(append(all, connect("192.0.2.2:1", 6, 0)...), connect("127.0.0.1:1", 9, 0)...)
	closed := map[string]int{}
	for _, c := range surplus(all, 6) {
		closed[c.from.String()]++
	}
	if len(closed) != 1 || closed["192.0.2.1:2"] != 3 {
		t.Errorf("closed are %v", closed)
	}
	spared := 0
	for range 100 { // strangers from the API server's address who say more than it does
		all := append(connect("192.0.2.1:1", 1, 3000), connect("192.0.2.1:2", 50, 16000)...)
		if c := surplus(all, 40); len(c) == 11 && !slices.Contains(c, all[0]) {
			spared++
		}
	}
	if spared < 50 { // 78 are expected
		t.Errorf("the API server's connection was spared %d times of 100", spared)
	}
}

// TestConnectionOf: the server's end of a connection to its port is found, and how much arrived there.
func TestConnectionOf(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	var found []connection
	for _, fd := range sockets.Descriptors() {
		if c := connectionOf(fd, port); c.from.IsValid() {
			found = append(found, c)
		}
	}
	if len(found) != 1 || found[0].from.String() != client.LocalAddr().String() || found[0].said != 5 {
		t.Errorf("found are %v", found)
	}
	l := limit{port: port, most: 1}
	now := time.Now()
	if closed, crowded := l.look(sockets.Count(), now); closed != 0 || !crowded {
		t.Errorf("%d connections of this machine were closed; crowded: %t", closed, crowded)
	}
	client.Close()
	server.Close()
	others := l.others
	for _, c := range []struct {
		what        string
		descriptors int
		after       time.Duration
		looks       bool
	}{
		{"a connection may be there", others + 1, time.Second, true},
		{"the same is known now", others + 1, time.Second, false},
		{"some time later", others + 1, lookInterval, true},
		{"more than were known", others + 20, time.Second, true},
	} {
		now = now.Add(c.after)
		before := l.looked
		if _, crowded := l.look(c.descriptors, now); crowded || l.looked.After(before) != c.looks {
			t.Errorf("%s: it looks: %t; crowded: %t", c.what, l.looked.After(before), crowded)
		}
	}
}

func TestCount(t *testing.T) {
	before := sockets.Count()
	for range 100 { // other tests may open and close some
		file, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
	}
	if now := sockets.Count(); now < before+50 || len(sockets.Descriptors()) < before+50 {
		t.Errorf("%d descriptors, then %d, and the list has %d", before, now, len(sockets.Descriptors()))
	}
}
