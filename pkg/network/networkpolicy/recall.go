package networkpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/cnievents"
)

// recall remembers in which namespaces policies isolate pods, for a start without an API: what exactly they allow is not
// known then, so pods of these namespaces are cut off until it is.
type recall struct {
	file string
	last map[string][directions]bool
	kept bool // last is what the file has
}

// keep writes the file if it would say something else.
func (r *recall) keep(isolating map[string][directions]bool) error {
	if r.file == "" || r.kept && maps.Equal(r.last, isolating) {
		return nil
	}
	r.last, r.kept = isolating, true
	if len(isolating) == 0 {
		if err := os.Remove(r.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := json.Marshal(isolating)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.file), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(r.file, append(data, '\n'), 0o600)
}

// read returns what the file has.
func (r *recall) read() (map[string][directions]bool, error) {
	data, err := os.ReadFile(r.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading which namespaces have network policies: %w", err)
	}
	var out map[string][directions]bool
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.file, err)
	}
	return out, nil
}

// isolating returns in which directions policies isolate pods of a namespace: those that are known, or were.
func (e *enforcer) isolating(namespace string) ([directions]bool, error) {
	e.mu.Lock()
	listed, held := e.listed, e.engine.isolating(namespace)
	e.mu.Unlock()
	if listed {
		return held, nil
	}
	known, err := e.recall.read()
	return known[namespace], err
}

// withoutAPI isolates a pod whose policies cannot be asked for, if there were any in its namespace. What is in the
// kernel stays otherwise: it is what was in force when the API was last there. The caller holds offline, and nothing
// was written with the API so far.
func (e *enforcer) withoutAPI(ctx context.Context, n cnievents.Notice) error {
	held, err := e.isolating(n.Namespace)
	if err != nil {
		return err
	}
	there, err := e.exists(footprint.PolicyTable)
	if err != nil {
		return fmt.Errorf("looking for the table of network policies: %w", err)
	}
	if !there && held == [directions]bool{} {
		return nil
	}
	if guarded, err := e.exists(footprint.PolicyBridgeTable); !guarded || err != nil { // an earlier version wrote none
		if problem := e.guard(ctx); problem != "" {
			log().Warn(problem)
		}
	}
	if !there {
		e.mu.Lock()
		e.heir = true
		e.mu.Unlock()
		base := newTable(familiesOf(e.network.prefixes))
		if err := e.transact(ctx, knftables.InetFamily, func(tx *knftables.Transaction) { base.writeAll(tx, e.network) }); err != nil {
			return fmt.Errorf("isolating pod %s/%s: %w", n.Namespace, n.Name, err)
		}
	}
	for d := range directions {
		for _, addr := range n.IPs {
			key := []string{addr.String()}
			name := verdictMap(d, familyOf(addr))
			if there { // the address may have been another pod's
				_ = e.transact(ctx, knftables.InetFamily, func(tx *knftables.Transaction) { tx.Delete(&knftables.Element{Map: name, Key: key}) })
			}
			if !held[d] {
				continue
			}
			if err := e.transact(ctx, knftables.InetFamily, func(tx *knftables.Transaction) {
				tx.Add(&knftables.Element{Map: name, Key: key, Value: []string{"jump " + holdChain}})
			}); err != nil {
				return fmt.Errorf("isolating pod %s/%s: %w", n.Namespace, n.Name, err)
			}
		}
	}
	return nil
}
