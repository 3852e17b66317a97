package overlay

import (
	"strings"
	"testing"
)

// TestChange: a text that upstream has changed or has more than once is an error that names the file.
func TestChange(t *testing.T) {
	c := change{"a/b.go", "old()\n", "new()\n"}
	if got, err := c.apply([]byte("x\nold()\ny\n")); err != nil || string(got) != "x\nnew()\ny\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"x\n", "old()\nold()\n"} {
		if _, err := c.apply([]byte(text)); err == nil || !strings.Contains(err.Error(), "a/b.go") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
