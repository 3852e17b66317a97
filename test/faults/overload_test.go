package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/growth"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// The overload: so many programs that always want to run as can use four times what the host may use.
const (
	cores   = 0.5
	factor  = 4
	anHour  = time.Hour
	warmUp  = anHour / 6
	oneTurn = 30 * time.Second // between two samples
	loop    = "while :; do :; done"
)

// TestOverload overloads a server with pods for an hour while clients write: no half is taken for one that hangs, nothing is restarted, and memory,
// descriptors and goroutines do not grow from the second to the last sixth of the hour.
func TestOverload(t *testing.T) {
	skipUnlessLong(t)
	slots.Take(t)
	hosts.Bin(t)
	c := verdicts.Class{Name: "endurance", Kinds: []string{"overload-hour"}, Long: 1}
	c.Each(t, func(t *testing.T, _ string, _ uint64, row *verdicts.Row) {
		s := newSingle(t, hosts.Plan{Servers: 1, Images: true}, func(*hosts.Host) {})
		s.well()
		before := s.containers()
		l, err := begin(t.Context(), "overload", s.clients, pace{workers: 1, pause: time.Second, timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		s.host.LimitCPU(cores)
		for range int(cores * factor) {
			busy := s.host.Command("sh", "-c", loop)
			if err := busy.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = busy.Process.Kill() }) // the loop itself ends with the host
		}
		began, used := time.Now(), s.host.CPUTime()
		first, last := s.sample(t)
		ops := l.end()
		got := (s.host.CPUTime() - used).Seconds() / time.Since(began).Seconds()
		if out, _ := s.host.Try("pgrep", "-c", "-f", "^sh -c "+loop); got > 1.05*cores || strings.TrimSpace(out) != fmt.Sprint(cores*factor) {
			t.Errorf("the host used %.2f cores, and %s of its loops run: it was not overloaded", got, out)
		}
		s.host.LimitCPU(2)
		for _, c := range s.clients {
			l.list(t.Context(), c) // the check of the histories sees whether the last writes are there
		}
		v := check(append(ops, l.seen.all()[len(ops):]...))
		row.Acknowledged, row.Lost = v.acknowledged, len(v.bad())
		row.Gap = longestGap(ops, 0, anHour, op.writes).length().Seconds()
		v.gap = 0 // it is no fault
		for _, problem := range v.problems() {
			t.Error(problem)
		}
		for _, line := range growth.Grown(first, last) {
			t.Error("grown: " + line)
		}
		for _, line := range s.restarted(before) {
			t.Error(line)
		}
		name, percent := growth.Most(first, last, growth.Bytes)
		row.Seen = fmt.Sprintf("with %.2f cores for %d programs that would use one each; the most growth is that of the %s: %.1f %%", got, int(cores*factor), strings.TrimPrefix(name, growth.Bytes), percent)
		t.Logf("%s; no write was acknowledged for %.1f s at most\nfirst:\n%slast:\n%s", v, row.Gap, first, last)
	})
}

// sample waits for an hour and returns the medians of what the server uses in its second sixth and in its last one.
func (s *single) sample(t *testing.T) (first, last growth.Figures) {
	t.Helper()
	var early, late []growth.Figures
	turn := time.NewTicker(oneTurn)
	defer turn.Stop()
	for began := time.Now(); time.Since(began) < anHour; <-turn.C {
		f := s.Running(s.host).Usage()
		f.Add(s.goroutines())
		t.Logf("after %s:\n%s", time.Since(began).Round(time.Second), f)
		switch age := time.Since(began); {
		case age > warmUp && age <= 2*warmUp:
			early = append(early, f)
		case age > anHour-warmUp:
			late = append(late, f)
		}
	}
	return growth.Median(early), growth.Median(late)
}

// goroutines are those of the control plane and of the node, as far as they answer.
func (s *single) goroutines() growth.Figures {
	f := growth.Figures{}
	for half, path := range map[string]string{"control-plane": "/metrics", "node": "/api/v1/nodes/" + s.host.Name + "/proxy/metrics"} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		text, err := s.direct[s.host.Name].Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx)
		cancel()
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			var n float64
			if _, err := fmt.Sscanf(line, "go_goroutines %f", &n); err == nil {
				f["goroutines of "+half] = n
			}
		}
	}
	return f
}

// restarted says which half or which container was restarted, or is another one than before.
func (s *single) restarted(before []string) (lines []string) {
	if n := s.Running(s.host).Restarts(); n > 0 {
		lines = append(lines, fmt.Sprintf("child processes were restarted %d times", n))
	}
	if after := s.containers(); fmt.Sprint(after) != fmt.Sprint(before) {
		lines = append(lines, fmt.Sprintf("the containers were %v, and are %v", before, after))
	}
	return lines
}
