package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/etcd/members"
)

// etcdPatience is the time limit for reading etcd's status.
const etcdPatience = 5 * time.Second

func (d *Doctor) etcd(ctx context.Context) []check.Verdict {
	if d.Config.Datastore.External() {
		return externalEtcd(ctx, d.Config.Datastore.Endpoints)
	}
	const fix = "see check processes and check components for the reason; coracle logs --component etcd has more"
	if why, ok := d.processes().stuck[state.ControlPlane]; ok && why != waitsForDisk {
		return check.Failf("see check processes", "etcd does not answer, because its process does nothing: %s", why)
	}
	if u, ok := d.processes().unit("etcd"); ok && u.Waiting != "" {
		return check.Failf("see docs/high-availability.md", "etcd does not answer yet, because it waits for %s", u.Waiting)
	}
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	dir := d.Config.Dirs.PKI() + "/etcd/"
	m := &members.Members{Socket: d.Config.Dirs.EtcdSocket(), CA: dir + "ca.crt", Cert: dir + "peer.crt", Key: dir + "peer.key"}
	conn, err := net.DialTimeout("unix", m.Socket, time.Second)
	if err != nil {
		return check.Failf(fix, "etcd does not run: %v", err)
	}
	conn.Close()
	status, err := m.Status(ctx)
	if err != nil {
		return check.Failf(fix, "etcd does not answer: %v", err)
	}
	took, err := readTime(ctx, m)
	return judgeEtcd(status, took, err)
}

// readTime measures a linearizable read, which needs a majority of the members.
func readTime(ctx context.Context, m *members.Members) (time.Duration, error) {
	client, err := m.Dial()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	began := time.Now()
	_, err = client.Get(ctx, "health")
	return time.Since(began), err
}

// judgeEtcd judges etcd's status, and the time or error of a read.
func judgeEtcd(s members.Status, read time.Duration, readErr error) (out []check.Verdict) {
	const slow, full = 100 * time.Millisecond, 80
	answering, leader := 0, ""
	for _, m := range s.Members {
		if m.Leader {
			leader = m.Name
		}
		if m.Answers {
			answering++
			continue
		}
		out = append(out, check.Failf(fmt.Sprintf("start coracle there, or run coracle doctor there; if it is lost for good: coracle etcd remove %s", m.Name),
			"etcd's member %s does not answer", m.Name)...)
	}
	if !s.Quorum {
		out = append(out, check.Failf("start the other servers, or see docs/high-availability.md on lost quorums: coracle cluster reset-quorum",
			"etcd has no quorum (%d of %d members answer): the cluster cannot be changed", answering, len(s.Members))...)
	} else if leader == "" {
		out = append(out, check.Warnf("wait for the election, which takes seconds", "etcd has no leader now")...)
	}
	for _, a := range s.Alarms {
		fix := "the member's data is damaged: see docs/high-availability.md on wiping a server"
		if a.Kind == "NOSPACE" {
			fix = "delete objects that are not needed, and coracle frees the space later (coracle etcd defrag: at once); or --etcd-arg quota-backend-bytes=N"
		}
		out = append(out, check.Failf(fix, "etcd's alarm %s of %s: it refuses writes", a.Kind, a.Member)...)
	}
	if s.Quota > 0 && s.InUse*100/s.Quota >= full {
		out = append(out, check.Warnf("delete objects that are not needed, or raise --etcd-arg quota-backend-bytes",
			"%d of %d MiB of etcd's quota are in use; when it is full, etcd refuses writes", s.InUse>>20, s.Quota>>20)...)
	}
	switch {
	case readErr != nil && s.Quorum:
		out = append(out, check.Warnf("check disk-latency, and the network between servers", "etcd did not answer a read in time: %v", readErr)...)
	case readErr == nil && read > slow:
		out = append(out, check.Warnf("check disk-latency, the load of this machine, and the network between servers", "a read of etcd takes %s", read.Round(time.Millisecond))...)
	}
	return check.Else(out, check.Okf("%d of %d members answer, %s leads, %d MiB of data, a read takes %s",
		answering, len(s.Members), leader, s.Size>>20, read.Round(100*time.Microsecond)))
}

// externalEtcd checks that an etcd that coracle does not run can be reached.
func externalEtcd(ctx context.Context, endpoints []string) (out []check.Verdict) {
	reached := 0
	for _, e := range endpoints {
		if err := reach(ctx, e); err != nil {
			out = append(out, check.Warnf("check whether it runs, and for a firewall between", "etcd's endpoint %s cannot be reached: %v", e, err)...)
			continue
		}
		reached++
	}
	if reached == 0 {
		return append(out, check.Failf("start one of the endpoints", "no endpoint of the external etcd can be reached")...)
	}
	return check.Else(out, check.Okf("%d endpoints of an etcd that coracle does not run can be reached", reached))
}

func reach(ctx context.Context, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	network, address := "tcp", u.Host
	if u.Scheme == "unix" || u.Scheme == "unixs" {
		network, address = "unix", u.Path
	}
	if address == "" {
		return errors.New("it names no host")
	}
	conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}
