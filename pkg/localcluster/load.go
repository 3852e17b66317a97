package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Runtime tells how this machine reaches the containerd of a node.
type Runtime struct {
	Node string
	// Socket is containerd's.
	Socket string
	// Root is containerd's directory on this machine. Those of all nodes of a cluster are in one mount, so that files in
	// them can be linked. Own is the same directory on the node.
	Root, Own string
}

// Runtimes lists the containerds of a cluster's nodes that are up, the first server's first.
func (s Store) Runtimes(cluster string) (all []Runtime, err error) {
	r, err := s.Load(cluster)
	if err != nil {
		return nil, err
	}
	if r.State != Running {
		return nil, fmt.Errorf("cluster %s is %s", r.Name, r.State)
	}
	on := paths.Default()
	for _, n := range r.Nodes {
		if n.PID == 0 {
			continue
		}
		// The nodes' disks may be on a tmpfs that is mounted in the holder's mount namespace only.
		disk := fmt.Sprintf("/proc/%d/root%s", r.Holder.PID, s.host(r.Name, n.Name, "data"))
		all = append(all, Runtime{
			Node:   n.Name,
			Socket: fmt.Sprintf("/proc/%d/root%s", n.PID, on.ContainerdSocket()),
			Root:   filepath.Join(disk, strings.TrimPrefix(on.Containerd(), on.Data)),
			Own:    on.Containerd(),
		})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no node of cluster %s is up", r.Name)
	}
	return all, nil
}

// shareImages links the images that the first node has imported into the other nodes.
func (m Maker) shareImages(ctx context.Context, r Record, p Plan) error {
	if len(r.Images) == 0 || len(r.Nodes) == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.Wait)
	defer cancel()
	args := append([]string{"images", "load", "--clusters-dir", m.Store.Dir, "--name", r.Name, "--"}, r.Images...)
	cmd := exec.CommandContext(ctx, filepath.Join(r.Payload, core), args...)
	cmd.Env = nodeEnv()
	var complaint strings.Builder
	cmd.Stderr = &complaint
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return errors.New(strings.ReplaceAll(strings.TrimSpace(complaint.String()), "coracle: ", ""))
	}
	return nil
}
