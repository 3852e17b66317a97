package clocks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// announce tells a process that its clock was set, if it waits for that: it makes the timers that setting the clock cancels end now.
func announce(pid int) error {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fdinfo")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || !strings.Contains(string(data), "\nclockid: 0\n") || !cancelled(string(data)) {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err == nil {
			err = end(pid, fd)
		}
		if err != nil {
			return fmt.Errorf("telling process %d of the jump: %w", pid, err)
		}
	}
	return nil
}

// cancelled reports whether a timer is one that setting the clock cancels.
func cancelled(fdinfo string) bool {
	_, text, _ := strings.Cut(fdinfo, "settime flags: ")
	line, _, _ := strings.Cut(text, "\n")
	flags, err := strconv.ParseInt(line, 8, 64)
	return err == nil && flags&unix.TFD_TIMER_CANCEL_ON_SET != 0
}

// end makes a timer of another process end.
func end(pid, fd int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	timer, err := unix.PidfdGetfd(process, fd, 0)
	if errors.Is(err, unix.EBADF) { // it was closed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(timer)
	past := unix.ItimerSpec{Value: unix.Timespec{Nsec: 1}}
	return unix.TimerfdSettime(timer, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &past, nil)
}
