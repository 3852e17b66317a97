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

// isolationCache is a file with the namespaces in which policies isolate pods, for a start without the API. It does not say what
// the policies allow, so pods of these namespaces get no traffic until the API answers.
type isolationCache struct {
	file string
	last map[string][directions]bool
	kept bool // the file has the content of last
}

// keep writes the file if its content changes. No namespaces is no file.
func (c *isolationCache) keep(isolated map[string][directions]bool) error {
	if c.file == "" || c.kept && maps.Equal(c.last, isolated) {
		return nil
	}
	c.kept = false
	if err := c.write(isolated); err != nil {
		return err // the next call tries again
	}
	c.last, c.kept = isolated, true
	return nil
}

func (c *isolationCache) write(isolated map[string][directions]bool) error {
	if len(isolated) == 0 {
		if err := os.Remove(c.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := json.Marshal(isolated)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(c.file, append(data, '\n'), 0o600)
}

// read returns the content of the file.
func (c *isolationCache) read() (map[string][directions]bool, error) {
	data, err := os.ReadFile(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading which namespaces have network policies: %w", err)
	}
	var out map[string][directions]bool
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("reading %s: %w", c.file, err)
	}
	return out, nil
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
