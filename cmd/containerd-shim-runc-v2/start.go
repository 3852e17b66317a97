package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long the first process of a container may take until it waits for its start, once runc has created it: most often it does already.
const patience = time.Second

// startFIFO returns the FIFO at which the first process of a container waits for "runc start", if command is that and runc is coracle's own, which is beside
// the shim. Other programs may do more.
func startFIFO(command *exec.Cmd) string {
	args := command.Args
	root := slices.Index(args, "--root") + 1
	if root == 0 || root+2 >= len(args) || args[len(args)-2] != "start" || command.Path != filepath.Join(filepath.Dir(os.Args[0]), "runc") {
		return ""
	}
	return filepath.Join(args[root], args[len(args)-1], "exec.fifo")
}

// release lets the first process of a container go on, as runc does (Container.Exec of its libcontainer): the process waits until somebody reads what it
// writes into the FIFO, and a container without one has started. An execution of runc for that takes longer than all else in a start.
//
// If it returns false, runc finds out why. Until then the caller keeps reader, if there is one, open: the kernel kills a process that writes into a FIFO nobody
// reads any more.
func release(fifo string, patience time.Duration) (released bool, reader *os.File) {
	fd, err := unix.Open(fifo, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, nil
	}
	reader = os.NewFile(uintptr(fd), fifo)
	until := time.Now().Add(patience)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(0, time.Until(until).Milliseconds())))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			return false, reader
		}
		break
	}
	if n, err := unix.Read(fd, make([]byte, 1)); n != 1 || err != nil {
		return false, reader
	}
	if err := os.Remove(fifo); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, reader
	}
	_ = reader.Close()
	return true, nil
}
