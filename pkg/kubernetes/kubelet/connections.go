package kubelet

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/sockets"
)

const (
	// maxConnections is how many connections to the kubelet are kept of one source: each exec, attach and log that is followed takes one of
	// an API server, and each takes some 15 KB.
	maxConnections = 1000
	// connectionsInterval is the time between two looks at them, and crowdedInterval if there may be many: a stranger opens some thousands a second.
	connectionsInterval = time.Second
	crowdedInterval     = 100 * time.Millisecond
	// connectionsReport is the time between two log lines about them.
	connectionsReport = time.Minute
)

// limitConnections limits the connections to the kubelet, which itself keeps those on which nothing is said for four hours, and shares its descriptors
// with containerd. ctx ends it. This can go when upstream's server has a ReadHeaderTimeout, or takes a listener.
func limitConnections(ctx context.Context, port uint16) {
	interval := connectionsInterval
	var reported time.Time
	l := limit{port: port, most: maxConnections}
	for closed := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
		surplus, crowded := l.look(sockets.Count(), time.Now())
		if interval = connectionsInterval; crowded {
			interval = crowdedInterval
		}
		closed += surplus
		if closed > 0 && time.Since(reported) > connectionsReport {
			logrus.WithField("component", "kubelet").Warnf("closed %d connections of addresses with more than %d", closed, maxConnections)
			closed, reported = 0, time.Now()
		}
	}
}

// connection is one to the kubelet.
type connection struct {
	fd   int
	from netip.AddrPort
	said uint64 // bytes that arrived
}

// limit is that of the connections of each source. Most descriptors are containerd's, some 16 for each pod, and looking at all of them each second would take
// more of the processor than all else that an idle node does.
type limit struct {
	port   uint16
	most   int
	others int       // descriptors that were no such connections at the last look
	looked time.Time // at all descriptors
}

// lookInterval is the time after which all descriptors are looked at in any case: there may be fewer others.
const lookInterval = time.Minute

// look closes connections that are more than their source may have, if there may be many among so many descriptors. It returns how many it
// closed, and whether there are many.
func (l *limit) look(descriptors int, now time.Time) (closed int, crowded bool) {
	if descriptors-l.others <= l.most/2 && now.Sub(l.looked) < lookInterval {
		return 0, false
	}
	open := sockets.Descriptors()
	if open == nil { // not one descriptor is free
		return 0, true
	}
	var all []connection
	for _, fd := range open {
		if c := connectionOf(fd, l.port); c.from.IsValid() {
			all = append(all, c)
		}
	}
	l.others, l.looked = descriptors-len(all), now
	toClose := surplus(all, l.most)
	for _, c := range toClose {
		sockets.Shutdown(c.fd, func(fd int) bool { return connectionOf(fd, l.port).from == c.from })
	}
	return len(toClose), len(all) > l.most/2
}

// introduced is how many bytes any client with a certificate has sent when it is known.
const introduced = 1 << 10

// surplus returns those connections that a source has more than it may. Of its own those go first that have not said enough to be a client with a
// certificate, and then any: strangers who say more are many, and the API server's connections from the same address few. Connections of this machine are
// not limited: those through tunnels are among them.
func surplus(all []connection, most int) (out []connection) {
	sources := map[netip.Prefix][]connection{}
	for _, c := range all {
		if !c.from.Addr().IsLoopback() {
			source := sockets.Source(c.from.Addr())
			sources[source] = append(sources[source], c)
		}
	}
	for _, its := range sources {
		rand.Shuffle(len(its), func(i, j int) { its[i], its[j] = its[j], its[i] })
		slices.SortStableFunc(its, func(a, b connection) int { return cmp.Compare(min(a.said, introduced), min(b.said, introduced)) })
		out = append(out, its[:max(0, len(its)-most)]...)
	}
	return out
}

// established is TCP_ESTABLISHED of the kernel.
const established = 1

// connectionOf returns the connection to a port of this machine that a descriptor is; without a valid address if it is none, or is ending.
func connectionOf(fd int, port uint16) connection {
	if sockets.Address(unix.Getsockname(fd)).Port() != port {
		return connection{}
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.State != established {
		return connection{}
	}
	return connection{fd: fd, from: sockets.Address(unix.Getpeername(fd)), said: info.Bytes_received}
}
