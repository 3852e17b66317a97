package preflight

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestMayPivot(t *testing.T) {
	expect(t, mayPivot(unix.EPERM), "pivot_root", "seccomp=unconfined")
	if err := mayPivot(unix.ENOENT); err != nil {
		t.Error(err)
	}
}
