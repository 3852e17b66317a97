package endpoint

import (
	"net/http"
	"sync"
)

// mostChecks is how many requests of a node are looked at at the same time: it has one for each path of forNodes, and some more after a break.
const mostChecks = 8

// checks bounds what one caller can have the server do at the same time. The paths of forNodes are long-running requests, which the API server's priority and
// fairness leaves out, and looking at a claim takes a place of the leader's own requests.
type checks struct {
	mu    sync.Mutex
	under map[string]int // by caller
}

// one calls check, or refuses the caller, who has too many under way.
func (c *checks) one(who string, check func() error) error {
	add := func(n int) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		now := c.under[who] + n
		if now > mostChecks {
			return false
		}
		if c.under == nil {
			c.under = map[string]int{}
		}
		if c.under[who] = now; now == 0 {
			delete(c.under, who)
		}
		return true
	}
	if !add(1) {
		return newRefusal(http.StatusTooManyRequests, "%s has %d requests under way", who, mostChecks)
	}
	defer add(-1)
	return check()
}
