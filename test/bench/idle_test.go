package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
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
	pids := map[string]int{state.Front: s.FrontPID()}
	for _, half := range []string{state.ControlPlane, state.Node} {
		pid, err := s.ChildPID(half)
		if err != nil {
			t.Fatal(err)
		}
		pids[half] = pid
	}
	time.Sleep(settle)
	before := map[string]usage{}
	for name, pid := range pids {
		before[name] = measure(t, pid)
	}
	time.Sleep(window)
	var memory, cpu, written float64
	for _, name := range []string{state.Front, state.ControlPlane, state.Node} {
		now := measure(t, pids[name])
		percent := (now.cpu - before[name].cpu) / window.Seconds() * 100
		r.add("idle: private memory of "+name, "MB", 0, before[name].anonMB)
		r.add("idle: CPU of "+name, "%", 0, percent)
		memory += before[name].anonMB
		cpu += percent
		written += now.written - before[name].written
	}
	r.add("idle: private memory", "MB", 240, memory)
	r.add("idle: CPU", "%", 3, cpu)
	r.add("idle: bytes written per hour", "MB", 0, written*float64(time.Hour/window)/1e6)
	h.Kill()
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
