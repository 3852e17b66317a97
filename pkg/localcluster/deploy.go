package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// kubectl prepares a call of kubectl with all rights.
func (s *Session) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.Record.Payload, core), append([]string{"kubectl"}, args...)...)
	cmd.Env = append(nodeEnv(), "KUBECONFIG="+s.store.Kubeconfig(s.Record.Name), "KUBECACHEDIR="+filepath.Join(s.store.dir(s.Record.Name), "cache"))
	return cmd
}

// output runs kubectl and returns its standard output.
func (s *Session) output(ctx context.Context, args ...string) ([]byte, error) {
	return output(ctx, s.kubectl(ctx, args...))
}

// output runs a command of ctx and returns its standard output. The error of a command that fails is its standard error.
func output(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if err != nil && ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		err = errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	return out, err
}

// unknownKind is part of kubectl's error for a custom resource whose definition was applied just now and is not established yet.
const unknownKind = "no matches for kind"

// applyPause is the pause between attempts to apply custom resources.
const applyPause = 200 * time.Millisecond

// Apply applies a file or a directory. It repeats that while definitions of custom resources in it are not established.
func (s *Session) Apply(ctx context.Context, path string) error {
	for {
		_, err := s.output(ctx, "apply", "--server-side", "--recursive", "-f", path)
		if err == nil {
			return nil
		}
		if !strings.Contains(err.Error(), unknownKind) || lifecycle.Sleep(ctx, applyPause) != nil {
			return fmt.Errorf("applying %s: %w", path, err)
		}
	}
}

// AwaitNetwork waits until all nodes of a cluster with OtherNetwork are Ready.
func (s *Session) AwaitNetwork(ctx context.Context) error {
	if !s.Record.OtherNetwork {
		return nil
	}
	if _, err := s.output(ctx, "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=24h"); err != nil {
		return fmt.Errorf("waiting for nodes without coracle's network to be Ready; their network plug-in is to come by --manifest or in the configuration: %w", err)
	}
	return nil
}

// RollOut waits until all Deployments, DaemonSets and StatefulSets are rolled out.
func (s *Session) RollOut(ctx context.Context) error {
	const columns = `jsonpath={range .items[*]}{.metadata.namespace}{" "}{.kind}{"/"}{.metadata.name}{"\n"}{end}`
	out, err := s.output(ctx, "get", "deployments,daemonsets,statefulsets", "--all-namespaces", "-o", columns)
	if err != nil {
		return fmt.Errorf("listing what was deployed: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		namespace, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := s.output(ctx, "rollout", "status", "--namespace", namespace, name); err != nil {
			return fmt.Errorf("waiting for %s in namespace %s to be rolled out: %w", name, namespace, err)
		}
	}
	return nil
}

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
	_, err := output(ctx, cmd)
	if err != nil && ctx.Err() == nil {
		err = errors.New(strings.ReplaceAll(err.Error(), "coracle: ", ""))
	}
	return err
}

// digestLines is the most lines that Digest returns of each query.
const digestLines = 10

// digestTimeout limits the queries of Digest.
const digestTimeout = 5 * time.Second

// Digest returns pods that do not run and the last warnings; "" if there are none.
func (s *Session) Digest(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, digestTimeout)
	defer cancel()
	// Events of Nodes are left out: they are about the machine and do not explain why a command failed.
	queries := [][]string{
		{"get", "pods", "--all-namespaces", "--no-headers", "--field-selector=status.phase!=Running,status.phase!=Succeeded"},
		{"get", "events", "--all-namespaces", "--no-headers", "--field-selector=type=Warning,involvedObject.kind!=Node", "--sort-by=.metadata.creationTimestamp"},
	}
	answers := make([]string, len(queries))
	var all sync.WaitGroup
	for i, q := range queries {
		all.Go(func() {
			out, err := s.output(ctx, q...)
			if err != nil {
				return // the command's own failure matters more
			}
			lines := strings.SplitAfter(strings.TrimRight(string(out), "\n"), "\n")
			answers[i] = strings.Join(lines[max(0, len(lines)-digestLines):], "")
		})
	}
	all.Wait()
	var b strings.Builder
	for i, title := range []string{"pods that do not run:", "the last warnings:"} {
		if answers[i] != "" {
			fmt.Fprintf(&b, "%s\n%s\n", title, answers[i])
		}
	}
	return b.String()
}
