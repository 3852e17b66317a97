package supervise

import "testing"

// TestOthers: this process is never alone on a machine that runs tests.
func TestOthers(t *testing.T) {
	if !others() {
		t.Error("no other process was found")
	}
}
