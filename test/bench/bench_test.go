// Package bench measures coracle. Each figure is one line of output and one entry of the JSON file that
// CORACLE_BENCH names. Times are seconds from exec of the front, medians of CORACLE_BENCH_RUNS (default 5) runs.
// CORACLE_BENCH_ONLY chooses parts of it by their names, with a regular expression.
package bench

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

// Figure is one measured quantity.
type Figure struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Limit  float64   `json:"limit,omitempty"` // 0 means none
	Median float64   `json:"median"`
	Values []float64 `json:"values"`
}

// results collects figures in the order in which they are added.
type results struct{ figures []*Figure }

func (r *results) add(name, unit string, limit, value float64) {
	i := slices.IndexFunc(r.figures, func(f *Figure) bool { return f.Name == name })
	if i < 0 {
		i = len(r.figures)
		r.figures = append(r.figures, &Figure{Name: name, Unit: unit, Limit: limit})
	}
	r.figures[i].Values = append(r.figures[i].Values, value)
}

func (r *results) print(t *testing.T, file string) {
	for _, f := range r.figures {
		sorted := slices.Sorted(slices.Values(f.Values))
		f.Median = sorted[len(sorted)/2]
		limit := "no limit"
		if f.Limit > 0 {
			limit = fmt.Sprintf("at most %g", f.Limit)
		}
		fmt.Printf("%-52s %9.2f %-8s (min %.2f, max %.2f, n %d; %s)\n",
			f.Name, f.Median, f.Unit, sorted[0], sorted[len(sorted)-1], len(sorted), limit)
	}
	data, err := json.MarshalIndent(r.figures, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestBench(t *testing.T) {
	file := os.Getenv("CORACLE_BENCH")
	if file == "" {
		t.Skip("CORACLE_BENCH is not set: run `make bench`")
	}
	slots.Take(t)
	runs, err := strconv.Atoi(os.Getenv("CORACLE_BENCH_RUNS"))
	if err != nil {
		runs = 5
	}
	var r results
	defer r.print(t, file)

	size, err := os.Stat(hosts.Bin(t))
	if err != nil {
		t.Fatal(err)
	}
	r.add("file size", "MiB", 68, float64(size.Size())/(1<<20))

	wire := hosts.NewWire(t, netip.MustParsePrefix("172.30.0.0/24"))
	warm := hosts.New(t, wire, "warm", hosts.Options{}) // fills the page cache
	s, _ := start(t, warm)
	stop(t, s)
	only, err := regexp.Compile(os.Getenv("CORACLE_BENCH_ONLY"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct {
		name    string
		measure func()
	}{
		{"starts", func() { measureAllStarts(t, wire, runs, &r) }},
		{"idle", func() { measureIdle(t, wire, &r) }},
		{"audit", func() { measureAudit(t, wire, &r) }},
		{"add-ons", func() { measureAddons(t, wire, runs, &r) }},
		{"idle add-ons", func() { measureAddonsIdle(t, wire, max(runs, 3), &r) }},
		{"network policy", func() { measureNetworkPolicy(t, wire, &r) }},
		{"pods", func() { measureManyPods(t, wire, &r) }},
		{"density", func() { measureDensity(t, wire, &r) }},
		{"joins", func() { measureJoins(t, runs, &r) }},
		{"idle agent", func() { measureIdleAgent(t, &r) }},
		{"failover", func() { measureFailover(t, runs, &r) }},
		{"up", func() { measureUp(t, wire, runs, &r) }},
		{"run", func() { measureRun(t, wire, runs, &r) }},
		{"fork", func() { measureFork(t, wire, runs, &r) }},
		{"proxies", func() { measureProxies(t, wire, runs, &r) }},
		{"routes", func() { measureRoutes(t, wire, 5, 200, &r) }},
		{"many routes", func() { measureRoutes(t, wire, 10000, 50, &r) }},
		{"backup", func() { measureBackup(t, wire, &r) }},
		{"ephemeral", func() { measureEphemeral(t, wire, runs, &r) }},
		{"install", func() { measureInstall(t, runs, &r) }},
		{"upgrade", func() { measureUpgrade(t, runs, &r) }},
		{"container", func() { t.Run("container", func(t *testing.T) { measureContainer(t, runs, &r) }) }},
	} {
		if only.MatchString(part.name) {
			part.measure()
		}
	}
}

func measureAllStarts(t *testing.T, wire *hosts.Wire, runs int, r *results) {
	for i := range runs {
		h := hosts.New(t, wire, fmt.Sprint("run", i), hosts.Options{})
		h.CopyImages()
		h.Run("rm", "/var/lib/coracle/images/agnhost.tar") // 49 MB that the app does not need
		measureStarts(t, h, r)
		h.Kill()
	}
}

// measureStarts measures the very first start, a first start with the payload unpacked, and a restart.
func measureStarts(t *testing.T, h *hosts.Host, r *results) {
	s, began := start(t, h)
	r.add("very first start: node Ready", "s", 6, readyAt(t, h, began, state.Node, "node-ready"))
	stop(t, s)

	h.Run("sh", "-c", "cd /var/lib/coracle && ls -A | grep -vxE 'data|bin|images' | xargs rm -rf; rm -rf /etc/coracle /run/coracle")
	began = time.Now()
	s = h.Start()
	app := startApp(t, h)
	h.Coracle("wait", "--timeout", "60s")
	r.add("fresh start: coracle wait returns", "s", 4, time.Since(began).Seconds())
	r.add("fresh start: API ready", "s", 2.5, readyAt(t, h, began, state.ControlPlane, "kube-apiserver"))
	r.add("fresh start: node Ready", "s", 3.5, readyAt(t, h, began, state.Node, "node-ready"))
	r.add("fresh start: DNS answers", "s", 0, readyAt(t, h, began, state.Node, "dns"))
	running, resolved := app()
	r.add("fresh start: app running", "s", 0, running.Sub(began).Seconds())
	r.add("fresh start: app running and DNS answers in it", "s", 6, resolved.Sub(began).Seconds())
	stop(t, s)

	s, began = start(t, h)
	r.add("restart: API ready", "s", 2.5, readyAt(t, h, began, state.ControlPlane, "kube-apiserver"))
	r.add("restart: node Ready", "s", 3.5, readyAt(t, h, began, state.Node, "node-ready"))
	stop(t, s)
}

func start(t *testing.T, h *hosts.Host) (s *hosts.Server, began time.Time) {
	t.Helper()
	began = time.Now()
	s = h.Start()
	h.Coracle("wait", "--timeout", "60s")
	return s, began
}

func stop(t *testing.T, s *hosts.Server) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatalf("stopping: %v", err)
	}
}

// readyAt is the time when a component became ready, in seconds after began, from the state file of its process.
func readyAt(t *testing.T, h *hosts.Host, began time.Time, half, unit string) float64 {
	t.Helper()
	data, err := os.ReadFile(h.Path("/run/coracle/state/" + half + ".json"))
	if err != nil {
		t.Fatal(err)
	}
	var p state.Process
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(p.Units, func(u lifecycle.Status) bool { return u.Name == unit })
	if i < 0 || p.Units[i].Ready.IsZero() {
		t.Fatalf("%s of %s was never ready", unit, half)
	}
	return p.Units[i].Ready.Sub(began).Seconds()
}
