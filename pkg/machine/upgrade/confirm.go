package upgrade

import (
	"context"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/machine/release"
)

// Confirm is called by a version that has become ready. If that version is on trial and stays well for the hold time, Confirm
// commits the upgrade. well returns what has been wrong since the call, "" for nothing; it may wait for that until ctx is done. Confirm returns the new state; ok is
// false if no trial is pending.
func Confirm(ctx context.Context, data string, well func() string) (s State, ok bool, err error) {
	s, there, err := Read(data)
	if err != nil || !there || s.Phase != Trial {
		return s, false, err
	}
	own, err := release.SumFile("/proc/self/exe")
	if err != nil {
		return s, false, err
	}
	return confirm(ctx, s, own, well)
}

// confirmPause is the time between two tries to write that a version is confirmed.
const confirmPause = time.Second

// confirm is Confirm for the executable with the checksum own.
func confirm(ctx context.Context, s State, own string, well func() string) (State, bool, error) {
	if own != s.To.SHA256 {
		return s, false, nil
	}
	if lifecycle.Sleep(ctx, s.Hold) != nil {
		return s, false, nil
	}
	e := newEngine(s.Dirs.Data)
	wrong := well()
	if ctx.Err() != nil {
		return s, false, nil
	}
	decide := func(s *State) bool {
		if s.Phase == Committed {
			return true // an earlier try could not make it safe
		}
		if s.Phase != Trial || s.Error != "" {
			return false // the watcher has decided meanwhile
		}
		if wrong != "" {
			s.Error = "it was ready, but did not stay so: " + wrong
			return true
		}
		s.Phase, s.Ended = Committed, e.now()
		return true
	}
	s, err := e.change(decide)
	for err != nil && lifecycle.Sleep(ctx, confirmPause) == nil { // a disk that is full for a moment takes back no good version
		s, err = e.change(decide)
	}
	if err == nil && s.Phase == Committed {
		e.tidy(s)
	}
	return s, true, err
}
