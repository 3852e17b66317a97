package sharedshims

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/runtime"
)

// shim is a running shim with its pods. The Runtime's mu guards it.
type shim struct {
	name, address string
	pods          map[string]bool // IDs of its sandboxes, also of those that are arriving
	arriving      int             // pods whose creation has not returned
	settled       *sync.Cond      // arriving is less than before
	leaving       bool            // its last pod is being deleted: none may join
	ended         chan struct{}   // closed when the process has ended
}

// last reports whether no pod but the given one is in the shim or has been created.
func (s *shim) last(id string) bool {
	staying := len(s.pods) - s.arriving
	if s.pods[id] {
		staying--
	}
	return staying <= 0
}

// patience is how long after a failed creation a shim may take to end.
const patience = time.Second

// endsWithin waits until the shim has ended, but not longer than limit.
func (s *shim) endsWithin(limit time.Duration) bool {
	select {
	case <-s.ended:
		return true
	case <-time.After(limit):
		return false
	}
}

// joined returns the address of the shim that a container has joined, and its sandbox, as containerd wrote them into its bundle.
func joined(bundle string) (address, sandbox string) {
	var params struct{ Address string }
	data, _ := os.ReadFile(filepath.Join(bundle, "bootstrap.json"))
	_ = json.Unmarshal(data, &params) // a container with a shim of its own may have none
	id, _ := os.ReadFile(filepath.Join(bundle, "sandbox"))
	return params.Address, string(id)
}

// addressOf returns the address of the shim of a task.
func addressOf(task runtime.Task) string {
	endpoint, ok := task.(interface {
		Endpoint() (address string, version int)
	})
	if !ok {
		return ""
	}
	address, _ := endpoint.Endpoint()
	return strings.TrimPrefix(address, protocol+"+")
}
