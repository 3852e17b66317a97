package lifecycle

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// gate is a component that is ready, withdraws that for each error it receives, and is ready again when it receives nil.
type gate struct {
	changes   chan error
	withdrawn chan error
}

func newGate() gate { return gate{make(chan error), make(chan error, 1)} }

// Run implements Component.
func (g gate) Run(ctx context.Context, ready func()) error {
	ready()
	for {
		select {
		case why := <-g.changes:
			if why == nil {
				ready()
			} else {
				g.withdrawn <- Withdraw(ctx, why)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// states are the states of all units, with what they wait for.
func states(g *Group) (words []string) {
	for _, s := range g.Status() {
		words = append(words, string(s.State)+strings.TrimRight(" "+s.Waiting, " "))
	}
	return words
}

func TestWithdraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		group := &Group{Log: quiet()}
		lead := newGate()
		api := group.Add("api", d.part("api", 0, 0))
		gate := group.Add("lead", lead, api)
		manager := group.Add("manager", d.part("manager", time.Second, time.Second), gate)
		group.Add("behind", d.part("behind", time.Second, 2*time.Second), manager, api)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- group.Run(ctx) }()
		<-group.Ready()
		first := group.Status()
		d.events = nil
		for range 3 {
			began := time.Now()
			lead.changes <- errors.New("b leads")
			if err := <-lead.withdrawn; err != nil || time.Since(began) != 3*time.Second {
				t.Errorf("stopped after %s: %v", time.Since(began), err)
			}
			synctest.Wait()
			if got, want := states(group), []string{"ready", "standby b leads", "standby", "standby"}; !slices.Equal(got, want) {
				t.Errorf("the states are %q, want %q", got, want)
			}
			time.Sleep(time.Minute)
			lead.changes <- nil
			time.Sleep(3 * time.Second)
			if got, want := states(group), []string{"ready", "ready", "ready", "ready"}; !slices.Equal(got, want) {
				t.Errorf("the states are %q, want %q", got, want)
			}
			want := []string{"behind stopped", "manager stopped", "manager starts", "manager ready", "behind starts", "behind ready"}
			if !slices.Equal(d.events, want) {
				t.Errorf("it happened: %q", d.events)
			}
			d.events = nil
		}
		for i, s := range group.Status() {
			if s.Started != first[i].Started || s.Ready != first[i].Ready || s.Restarted.IsZero() != (i < 2) {
				t.Errorf("the times of the start of %s changed, or nothing says when it started again: %+v", s.Name, s)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if want := []string{"behind stopped", "manager stopped", "api stopped"}; !slices.Equal(d.events, want) {
			t.Errorf("at the end it happened: %q", d.events)
		}
	})
}

// TestWithdrawDeaf: what does not stop in time ends the group, and is named.
func TestWithdrawDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		group := &Group{Log: quiet()}
		lead := newGate()
		api := group.Add("api", d.part("api", 0, 0))
		gate := group.Add("lead", lead, api)
		group.Add("good", d.part("good", 0, 4*time.Second), gate)
		group.Add("deaf", d.part("deaf", 0, time.Minute), gate)
		ended := make(chan error, 1)
		go func() { ended <- group.Run(t.Context()) }()
		<-group.Ready()
		began := time.Now()
		lead.changes <- errors.New("b leads")
		const want = "deaf: it has not stopped within 5s, but must: b leads"
		if err := <-ended; err == nil || err.Error() != want || time.Since(began) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if err := <-lead.withdrawn; err == nil {
			t.Error("the gate does not learn that one of them still runs")
		}
		if last := d.last(); last != "api stopped" {
			t.Errorf("at the end: %s", last)
		}
		time.Sleep(time.Minute) // the deaf one ends
	})
}

// TestWithdrawEarly: a unit that is withdrawn while others start, or that stops meanwhile.
func TestWithdrawEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		group := &Group{Log: quiet()}
		lead := newGate()
		gate := group.Add("lead", lead)
		slow := group.Add("slow", d.part("slow", 10*time.Second, 0))
		group.Add("both", d.part("both", 0, 0), gate, slow)
		late := group.Add("late", runFunc(func(ctx context.Context, ready func()) error {
			<-ctx.Done()
			time.AfterFunc(time.Second, ready) // too late
			return nil
		}), gate)
		group.Add("never", d.part("never", 0, 0), late)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- group.Run(ctx) }()
		time.Sleep(time.Second)
		lead.changes <- errors.New("b leads")
		if err := <-lead.withdrawn; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if got, want := states(group), []string{"standby b leads", "ready", "standby", "standby", "standby"}; !slices.Equal(got, want) {
			t.Errorf("the states are %q, want %q", got, want)
		}
		if slices.Contains(d.events, "both starts") || slices.Contains(d.events, "never starts") {
			t.Errorf("it happened: %q", d.events)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestNobodyBeginsInTheEnd: a unit that has seen all its users end gets no other one.
func TestNobodyBeginsInTheEnd(t *testing.T) {
	g := &Group{}
	needed := g.Add("needed", newGate())
	user := g.Add("user", newGate(), needed)
	close(needed.serving)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if got, err := g.use(ctx, user); got != nil || err == nil || len(needed.users) > 0 {
		t.Errorf("got %v, %v; %d users", got, err, len(needed.users))
	}
}
