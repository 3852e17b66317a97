package nft

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWatchDeleted(t *testing.T) {
	isolate(t)
	network, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	ctx, stop := context.WithCancel(t.Context())
	gone, ended := make(chan struct{}, 1000), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine
		if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
			ended <- err
			return
		}
		ended <- WatchDeleted(ctx, "inet mine", func() { gone <- struct{}{} })
	}()
	heard := false
	for range 1000 { // until it listens
		runNFT(t, "add table inet mine\ndelete table inet mine")
		select {
		case <-gone:
			heard = true
		case <-time.After(20 * time.Millisecond):
			continue
		}
		break
	}
	if !heard {
		t.Fatal("nothing was heard")
	}
	for quiet := false; !quiet; { // what the tries before it have set off may still come
		select {
		case <-gone:
		case <-time.After(500 * time.Millisecond):
			quiet = true
		}
	}
	runNFT(t, "add table inet mine\nadd table ip mine\nadd table inet other\nadd chain inet mine c\ndelete chain inet mine c\ndelete table ip mine\ndelete table inet other")
	select {
	case <-gone:
		t.Error("the table of another name or family is not this one")
	case <-time.After(100 * time.Millisecond):
	}
	runNFT(t, "flush ruleset")
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("a flush of all rules was not heard")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
