package nft

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnsupported(t *testing.T) {
	for errno, want := range map[unix.Errno]bool{unix.EPROTONOSUPPORT: true, unix.EINVAL: true, unix.ENOBUFS: false, unix.EPERM: false, unix.EMFILE: false, unix.EINTR: false} {
		if got := Unsupported(fmt.Errorf("listing nft tables: %w", errno)); got != want {
			t.Errorf("%v: %v", errno, got)
		}
	}
}
