package nft

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// Gate lets packets of networks pass every forward chain with the policy drop. An accept in a table of coracle's does not help,
// because in nftables a drop in any chain is final. So Gate appends rules to these chains of other programs. Their own rules come
// first and still apply; only the policy does not.
type Gate struct {
	// Networks are the networks whose packets pass, in both directions.
	Networks []netip.Prefix
	// Comment marks the added rules, for Chain.DeleteMarked.
	Comment string
	// Note is called with the name of a chain before rules are added to it. After an error the chain is left alone.
	Note func(chain string) error
	// Opened is called with the name of a chain after rules were added to it.
	Opened func(chain string)

	mu     sync.Mutex
	opened map[string]bool // chains that have the rules
}

// Open adds the rules that are missing now.
func (g *Gate) Open() error {
	chains, err := Chains()
	if err != nil {
		return err
	}
	opened := map[string]bool{}
	var errs []error
	for _, c := range chains {
		if !c.dropsForwarded() {
			continue
		}
		opened[c.Name] = true
		errs = append(errs, g.open(c))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = opened
	return errors.Join(errs...)
}

func (g *Gate) open(c Chain) error {
	missing, err := c.missing(g.Networks, g.Comment)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := g.Note(c.Name); err != nil {
		return err
	}
	if err := c.add(missing, g.Comment); errors.Is(err, unix.ENOENT) {
		return nil // the chain was deleted meanwhile; Keep notices a new one
	} else if err != nil {
		return err
	}
	g.Opened(c.Name)
	return nil
}

// settleTime is the pause after an event: programs set up a firewall with many commands.
const settleTime = 200 * time.Millisecond

// maxAttempts is how often Open is tried after an event, until its error is reported.
const maxAttempts = 5

// Keep calls Open whenever a chain that drops appears or a rule is deleted from one, as at a restart of a firewall, until ctx is
// done. It passes errors of Open to report. It returns an error if it cannot receive events.
func (g *Gate) Keep(ctx context.Context, report func(error)) error {
	events, err := subscribe()
	if err != nil {
		return err
	}
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // a notification is pending
		}
	}
	notify() // of changes before the subscription
	go func() { ended <- watch(ctx, events, g.affectedBy, notify) }()
	for failures := 0; ; {
		select {
		case err := <-ended:
			return err
		case <-changed:
		}
		_ = lifecycle.Sleep(ctx, settleTime)
		err := g.Open()
		if err == nil {
			failures = 0
			continue
		}
		if failures++; failures < maxAttempts {
			notify() // the table may have changed while it was read
			continue
		}
		failures = 0
		report(err)
	}
}

// has reports whether a chain has rules of the gate.
func (g *Gate) has(chain string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened[chain]
}
