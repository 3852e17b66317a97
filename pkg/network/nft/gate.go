package nft

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// Gate lets packets of networks through every chain that drops what it forwards by its policy. An accept in a table of
// our own does not do that: in nftables a drop anywhere wins. So it puts rules at the end of these chains, which are
// others', and changes nothing else there: what their rules refuse stays refused, only the policy does not apply.
type Gate struct {
	// Networks are those whose packets pass, in both directions.
	Networks []netip.Prefix
	// Comment marks the rules as ours, for Chain.DeleteMarked.
	Comment string
	// Note is told the name of a chain before rules are added to it; its error is Open's.
	Note func(chain string) error
	// Opened is told the name of a chain that has got rules.
	Opened func(chain string)

	mu    sync.Mutex
	ruled map[string]bool // chains that have our rules
}

// Open adds the rules that are not there, once.
func (g *Gate) Open() error {
	chains, err := Chains()
	if err != nil {
		return err
	}
	ruled := map[string]bool{}
	var errs []error
	for _, c := range chains {
		if !c.dropsForwarded() {
			continue
		}
		ruled[c.Name] = true
		errs = append(errs, g.open(c))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ruled = ruled
	return errors.Join(errs...)
}

func (g *Gate) open(c Chain) error {
	missing, err := c.lacking(g.Networks, g.Comment)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := g.Note(c.Name); err != nil {
		return err
	}
	if err := c.add(missing, g.Comment); errors.Is(err, unix.ENOENT) {
		return nil // the chain has just gone; a new one will be heard of
	} else if err != nil {
		return err
	}
	g.Opened(c.Name)
	return nil
}

// settling is how long a change may take: programs make a firewall by many commands.
const settling = 200 * time.Millisecond

// attempts is how often what has to be done after a change is tried.
const attempts = 5

// Keep opens the gate again whenever a chain that drops appears or a rule goes from one, as at a restart of a firewall,
// until ctx is done. What goes wrong is told to report; an error of Keep itself is that nothing can be heard of.
func (g *Gate) Keep(ctx context.Context, report func(error)) error {
	events, err := subscribe()
	if err != nil {
		return fmt.Errorf("listening for changes of nft tables: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { events.Close() })
	defer stop()
	defer events.Close()
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	changed <- struct{}{} // what happened before it listened
	go func() { ended <- g.listen(events, changed) }()
	for failures := 0; ; {
		select {
		case err := <-ended:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("listening for changes of nft tables: %w", err)
		case <-changed:
		}
		_ = lifecycle.Sleep(ctx, settling)
		err := g.Open()
		if err == nil {
			failures = 0
			continue
		}
		if failures++; failures < attempts {
			signal(changed) // somebody may have changed the table while it was read
			continue
		}
		failures = 0
		report(err)
	}
}

// listen reads events and signals those that concern the gate. It ends when the socket is closed.
func (g *Gate) listen(events *os.File, changed chan<- struct{}) error {
	buffer := make([]byte, 64<<10) // the kernel's datagrams are smaller
	for {
		n, err := events.Read(buffer)
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // that one says that events were lost
			return err
		}
		if err == nil && !g.concerns(buffer[:n]) {
			continue
		}
		signal(changed)
	}
}

func signal(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// has reports whether rules of ours are in a chain.
func (g *Gate) has(chain string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ruled[chain]
}
