package endpoint

import (
	"strings"
	"sync"
	"testing"
)

// TestManyChecks: a node's many requests do not take the leader's places in the API server, and keep no other node from its own.
func TestManyChecks(t *testing.T) {
	var c checks
	var under, done sync.WaitGroup
	end := make(chan struct{})
	for range mostChecks {
		under.Add(1)
		done.Go(func() {
			if err := c.one("a", func() error { under.Done(); <-end; return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	under.Wait()
	called := false
	call := func() error { called = true; return nil }
	if err := c.one("a", call); err == nil || !strings.Contains(err.Error(), "a has 8 requests under way") || called {
		t.Errorf("one more: %v, called: %t", err, called)
	}
	if err := c.one("b", call); err != nil || !called {
		t.Errorf("another node: %v, called: %t", err, called)
	}
	close(end)
	done.Wait()
	if err := c.one("a", call); err != nil || len(c.under) != 0 {
		t.Errorf("afterwards: %v, %v", err, c.under)
	}
}
