package kube

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestCoalesceTimers runs in a process of its own: the slack would outlast the test.
func TestCoalesceTimers(t *testing.T) {
	if os.Getenv("TEST_COALESCE") == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestCoalesceTimers$", "-test.v")
		cmd.Env = append(os.Environ(), "TEST_COALESCE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	if err := CoalesceTimers(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("a program with cgo cannot change all of its threads")
	} else if err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		got, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
		if err == nil && strings.TrimSpace(string(got)) != "50000000" {
			t.Errorf("thread %s has a slack of %s ns", thread.Name(), got)
		}
	}
}
