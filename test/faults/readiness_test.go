package faults

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-dev/coracle/pkg/core/sockets"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// readiness asks for /readyz all the time, as load balancers do: from one host through its balancer, and at each server.
type readiness struct {
	stop  context.CancelFunc
	group sync.WaitGroup

	mu    sync.Mutex
	waits map[string][]time.Duration // by who was asked
	noes  map[string]int             // by who was asked and what the answer was
}

// readyBeat is the time between two questions to each. None waits for the answer to the one before.
const readyBeat = 100 * time.Millisecond

// watchReady begins to ask from a host.
func (a *arena) watchReady(from *hosts.Host) *readiness {
	a.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &readiness{stop: stop, waits: map[string][]time.Duration{}, noes: map[string]int{}}
	asked := map[string]string{"balancer": hosts.Balancer}
	for _, s := range a.Servers {
		asked[s.Name] = net.JoinHostPort(s.IP.String(), "6443")
	}
	for name, address := range asked {
		config, err := a.Config(from, address)
		if err != nil {
			a.t.Fatal(err)
		}
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := from.Dial(ctx, network, address)
			if err == nil {
				err = often(conn)
			}
			return conn, err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			a.t.Fatal(err)
		}
		r.group.Go(func() { r.ask(ctx, name, client.Discovery().RESTClient()) })
	}
	return r
}

// often makes a connection repeat what is lost as often as coracle's own do: how long other clients wait before they repeat a question does not
// depend on coracle.
func often(conn net.Conn) error {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	return sockets.ControlOften("", "", raw)
}

// ask asks one of them until ctx is done. Only the first question has to connect.
func (r *readiness) ask(ctx context.Context, name string, client rest.Interface) {
	ticker := time.NewTicker(readyBeat)
	defer ticker.Stop()
	for ctx.Err() == nil {
		r.group.Go(func() {
			try, cancel := context.WithTimeout(context.Background(), normal.timeout)
			defer cancel()
			began := time.Now()
			text, err := client.Get().AbsPath("/readyz").MaxRetries(0).DoRaw(try)
			took := time.Since(began)
			r.mu.Lock()
			defer r.mu.Unlock()
			if err != nil {
				took = normal.timeout
				r.noes[name+": "+brief(fmt.Errorf("%w: %s", err, text))]++
			}
			r.waits[name] = append(r.waits[name], took)
		})
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// end stops to ask, and returns how long 99 of 100 questions took at most, without those to the given hosts. A question that was not answered
// with yes counts as one that took as long as a client waits.
func (r *readiness) end(but []*hosts.Host) (p99 time.Duration, all string) {
	if r == nil {
		return 0, ""
	}
	r.stop()
	r.group.Wait()
	for _, name := range slices.Sorted(maps.Keys(r.waits)) {
		if waits := r.waits[name]; !slices.ContainsFunc(but, func(h *hosts.Host) bool { return h.Name == name }) {
			p99 = max(p99, percentile(waits, 99))
			all += fmt.Sprintf("\t/readyz of the %s: %d answers, 99 of 100 within %s, all within %s\n", name, len(waits), short(percentile(waits, 99)), short(slices.Max(waits)))
		}
	}
	for what, n := range r.noes {
		all += fmt.Sprintf("\t%d of %s\n", n, what)
	}
	return p99, all
}

// calmFor is a while, in which 99 of 100 answers come within calmLimit where nothing else needs the processors; calmPatience is how long that is waited for.
const (
	calmFor      = 3 * time.Second
	calmLimit    = 300 * time.Millisecond
	calmPatience = 4 * time.Minute
)

// calm waits until a cluster that nothing is done to answers fast, and reports whether it does. In `make test` it does not wait.
func (a *arena) calm(from *hosts.Host) bool {
	for deadline := time.Now().Add(calmPatience); verdicts.Long() && !a.answersFast(from); {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// answersFast reports whether a cluster that nothing is done to answers fast.
func (a *arena) answersFast(from *hosts.Host) bool {
	r := a.watchReady(from)
	time.Sleep(calmFor)
	p99, _ := r.end(nil)
	if p99 >= calmLimit {
		a.t.Logf("99 of 100 answers of /readyz take up to %s while nothing is broken", short(p99))
	}
	return p99 < calmLimit
}

// percentile is what that many of a hundred values do not exceed.
func percentile(values []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)*percent+99)/100-1]
}
