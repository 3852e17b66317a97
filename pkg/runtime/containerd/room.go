package containerd

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// roomPatience is how long containerd waits for room. Then it starts nevertheless: the kubelet makes room only with it.
const roomPatience = time.Minute

// awaitRoom waits while the disk is full to the last block. containerd writes the state of each container when it starts; one whose state it
// cannot write it forgets (internal/cri/server/restart.go), so that the kubelet starts another one beside it.
func (c Containerd) awaitRoom(ctx context.Context) {
	for began := time.Now(); full(c.Root) && time.Since(began) < roomPatience; {
		lifecycle.WaitingFor(ctx, "room on the disk of "+c.Root)
		if lifecycle.Sleep(ctx, time.Second/2) != nil {
			return
		}
	}
	lifecycle.WaitingFor(ctx, "")
}

// full reports whether a file system has no room for the state of some containers.
func full(dir string) bool {
	const bytes, inodes = 1 << 20, 100
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return false
	}
	return s.Bfree*uint64(s.Bsize) < bytes || s.Files > 0 && s.Ffree < inodes // btrfs has no limit of inodes
}
