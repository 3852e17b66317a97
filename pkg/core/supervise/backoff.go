package supervise

import "time"

// The pace of restarts: the first one at once, then slower and slower, and at once again after a while of health.
const (
	firstDelay = 500 * time.Millisecond
	lastDelay  = 15 * time.Second
	healthy    = 10 * time.Second
)

// backoff tells how long to wait before the next restart.
type backoff struct{ last time.Duration }

// next returns the delay before the next start, given how long the last instance had been ready.
func (b *backoff) next(wasReady time.Duration) (delay time.Duration) {
	if wasReady >= healthy {
		b.last = 0
	}
	delay = b.last
	b.last = min(max(2*b.last, firstDelay), lastDelay)
	return delay
}
