package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// settle is the time from Ready to the measurement at idle, window the duration of the measurement.
const (
	settle = 2 * time.Minute
	window = 2 * time.Minute
)

// usage has the resources that one process has used so far.
type usage struct {
	anonMB  float64 // private memory: RssAnon
	cpu     float64 // seconds
	written float64 // bytes that reached the block layer
}

// measureIdle measures an unused cluster.
func measureIdle(t *testing.T, wire *hosts.Wire, r *results) {
	h := hosts.New(t, wire, "idle", hosts.Options{})
	s, _ := start(t, h)
	processes := s.Processes()
	time.Sleep(settle)
	before := measureAll(t, processes)
	time.Sleep(window)
	var memory, cpu, written float64
	for i, now := range measureAll(t, processes) {
		name, was := processes[i].Name, before[i]
		percent := (now.cpu - was.cpu) / window.Seconds() * 100
		r.add("idle: private memory of "+name, "MB", 0, was.anonMB)
		r.add("idle: CPU of "+name, "%", 0, percent)
		memory += was.anonMB
		cpu += percent
		written += now.written - was.written
	}
	r.add("idle: private memory", "MB", 240, memory)
	r.add("idle: CPU", "%", 3, cpu)
	r.add("idle: bytes written per hour", "MB", 0, written*float64(time.Hour/window)/1e6)
	h.Kill()
}

// measureAudit measures how many more bytes an unused server writes with its audit log than one without it at the same time.
func measureAudit(t *testing.T, wire *hosts.Wire, r *results) {
	const longer = 10 * time.Minute
	servers := map[bool][]hosts.Process{}
	for _, audit := range []bool{true, false} {
		h := hosts.New(t, wire, fmt.Sprint("audit-", audit), hosts.Options{})
		s := h.Start(fmt.Sprint("--audit=", audit))
		h.Coracle("wait", "--timeout", "60s")
		defer h.Kill()
		servers[audit] = s.Processes()
	}
	written := func(audit bool) (sum float64) {
		for _, u := range measureAll(t, servers[audit]) {
			sum += u.written
		}
		return sum
	}
	time.Sleep(settle)
	with, without := written(true), written(false)
	time.Sleep(longer)
	with, without = written(true)-with, written(false)-without
	r.add("idle: bytes written per hour with an audit log", "MB", 0, with*float64(time.Hour/longer)/1e6)
	r.add("idle: bytes written per hour without", "MB", 0, without*float64(time.Hour/longer)/1e6)
	r.add("idle: bytes written, times those without an audit log", "", 1.1, with/without)
}

// measureAll measures each of the processes.
func measureAll(t *testing.T, processes []hosts.Process) (all []usage) {
	t.Helper()
	for _, p := range processes {
		all = append(all, measure(t, p.PID))
	}
	return all
}

func measure(t *testing.T, pid int) usage {
	t.Helper()
	read := func(file string) string {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	stat := read("stat")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const ticks = 100 // USER_HZ, fixed on Linux
	return usage{
		anonMB:  number(t, read("status"), "RssAnon:") * 1024 / 1e6,
		cpu:     (number(t, fields[11], "") + number(t, fields[12], "")) / ticks,
		written: number(t, read("io"), "write_bytes:"),
	}
}

// number parses the number that follows key in text.
func number(t *testing.T, text, key string) float64 {
	t.Helper()
	_, rest, ok := strings.Cut(text, key)
	if fields := strings.Fields(rest); ok && len(fields) > 0 {
		if n, err := strconv.ParseFloat(fields[0], 64); err == nil {
			return n
		}
	}
	t.Fatalf("no number after %q in %q", key, text)
	return 0
}
