package supervise

import (
	"fmt"
	"slices"
	"time"
)

// Hurry makes the stop that is under way, or the next one, quick: all programs at once, killed after 3 seconds.
func (s *Supervisor) Hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initHurry()
	s.hurrying.Do(func() { close(s.hurry) })
}

func (s *Supervisor) initHurry() {
	if s.hurry == nil {
		s.hurry = make(chan struct{})
	}
}

// stopAll stops the programs in reverse order. Each may use what is left of the time but for a share that the
// ones after it keep, so that a deaf node half does not cost the store its orderly end.
func (s *Supervisor) stopAll() {
	const share = 8 * time.Second
	deadline := time.Now().Add(s.StopTimeout)
	for i, c := range slices.Backward(s.running) {
		close(c.stop)
		timeout := time.NewTimer(time.Until(deadline) - time.Duration(i)*min(share, s.StopTimeout/4))
		select {
		case <-c.ended:
		case <-timeout.C:
			s.Line("", fmt.Sprintf("%s does not stop in time: killing it", c.Program.Name))
			close(c.kill)
			<-c.ended
		case <-s.hurry:
			timeout.Stop()
			s.stopRest(s.running[:i+1])
			return
		}
		timeout.Stop()
	}
}

// stopRest ends what is left at once; the last one has been asked already.
func (s *Supervisor) stopRest(left []*child) {
	timeout := time.NewTimer(3 * time.Second)
	defer timeout.Stop()
	for i, c := range left {
		if i < len(left)-1 {
			close(c.stop)
		}
	}
	for i, c := range left {
		select {
		case <-c.ended:
			continue
		case <-timeout.C:
		}
		for _, deaf := range left[i:] {
			close(deaf.kill)
		}
		for _, deaf := range left[i:] {
			<-deaf.ended
		}
		return
	}
}
