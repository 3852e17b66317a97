package networkpolicy

import (
	"context"
	"fmt"
	"os"

	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/cnievents"
)

// isolationCache is a file with the namespaces in which policies isolate pods, for a start without the API. It does not say what
// the policies allow, so pods of these namespaces get no traffic until the API answers. "" is no file.
type isolationCache string

// keep writes the file if its content changes. No namespaces is no file.
func (c isolationCache) keep(isolated map[string][directions]bool) error {
	switch {
	case c == "":
		return nil
	case len(isolated) > 0:
		return atomicfile.WriteJSON(string(c), isolated, 0o600)
	}
	return os.RemoveAll(string(c))
}

// read returns the content of the file.
func (c isolationCache) read() (isolated map[string][directions]bool, err error) {
	if _, err = atomicfile.ReadJSON(string(c), &isolated); err != nil {
		err = fmt.Errorf("reading which namespaces have network policies: %w", err)
	}
	return isolated, err
}

// isolatedDirections returns in which directions policies isolate pods of a namespace, by the API's policies if they are known,
// else by the file.
func (e *enforcer) isolatedDirections(namespace string) ([directions]bool, error) {
	e.mu.Lock()
	listed, held := e.listed, e.engine.isolatedDirections(namespace)
	e.mu.Unlock()
	if listed {
		return held, nil
	}
	known, err := e.isolation.read()
	return known[namespace], err
}

// isolateWithoutAPI isolates a pod while the API cannot be asked for its policies, if its namespace had any. The rest of the
// kernel's table stays as it was when the API last answered. The caller holds offline, and this process has not written with the
// API yet.
func (e *enforcer) isolateWithoutAPI(ctx context.Context, n cnievents.Event) error {
	held, err := e.isolatedDirections(n.Namespace)
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
	if there, err := e.exists(footprint.PolicyBridgeTable); !there || err != nil { // earlier versions of coracle wrote none
		if problem := e.writeBridgeTable(ctx); problem != "" {
			log().Warn(problem)
		}
	}
	if !there {
		e.mu.Lock()
		e.adopted = true
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
			if there { // an earlier pod may have had the address
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
