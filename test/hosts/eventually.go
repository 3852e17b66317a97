package hosts

import (
	"testing"
	"time"
)

// Eventually tries ten times a second until check succeeds; the test fails with check's last error after the timeout. It rests as long as a slow check takes,
// a second at most: a check that starts kubectl takes a tenth of a second of processor time, which other tests need.
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		began := time.Now()
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %v", timeout, err)
		}
		time.Sleep(min(max(time.Since(began), 100*time.Millisecond), time.Second))
	}
}
