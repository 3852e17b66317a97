package containerd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// roomPatience is how long containerd waits for room. Then it starts nevertheless: the kubelet makes room only with it.
const roomPatience = time.Minute

// awaitRoom waits while the disk is full to the last block, and reports whether there is room. containerd writes the state of each container
// when it starts; one whose state it cannot write it forgets (internal/cri/server/restart.go), and removeOrphans has to end it.
func (c Containerd) awaitRoom(ctx context.Context) bool {
	defer lifecycle.WaitingFor(ctx, "")
	for began := time.Now(); full(c.Root); {
		lifecycle.WaitingFor(ctx, "room on the disk of "+c.Root)
		if time.Since(began) > roomPatience || lifecycle.Sleep(ctx, time.Second/2) != nil {
			return false
		}
	}
	return true
}

// startsForRoom is how many starts in a row end for want of room. Each of them leaves the next one to find the containers that it has forgotten.
// Without a limit a disk that is full at times would keep the node from starting, and with it the kubelet, which makes room; and the front gives
// up after three failures if the node was never ready.
const startsForRoom = 2

// mayStartAgain counts the starts in a row that end for want of room, since the machine booted.
func (c Containerd) mayStartAgain() bool {
	starts, err := os.ReadFile(c.startsFile())
	return (err == nil || errors.Is(err, fs.ErrNotExist)) && len(starts) < startsForRoom && os.WriteFile(c.startsFile(), append(starts, '.'), 0o600) == nil
}

func (c Containerd) startsFile() string { return filepath.Join(c.State, "starts-for-room") }

// nearlyFull reports whether there may be no room at one moment although there is at another: etcd on the same disk takes 64 MiB for the next
// segment of its log when it starts, and gives them back when it ends. ext4 counts 16 MiB as free that nobody gets.
func nearlyFull(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && (s.Bfree*uint64(s.Bsize) < 96<<20 || s.Files > 0 && s.Ffree < 1000)
}

// full reports whether a file system has no room for the state of some containers. Only a write tells: the blocks that statfs calls free are in
// part ones that nobody gets (ext4 keeps 16 MiB for its metadata), or that only root gets.
func full(dir string) bool {
	const bytes, inodes = 1 << 20, 100
	probe := filepath.Join(dir, ".room")
	defer os.Remove(probe)
	if err := os.WriteFile(probe, make([]byte, bytes), 0o600); errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return true
	}
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && s.Files > 0 && s.Ffree < inodes // btrfs has no limit of inodes
}
