package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// kubectl prepares a call of kubectl with all rights.
func (s *Session) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.Record.Payload, core), append([]string{"kubectl"}, args...)...)
	cmd.Env = append(nodeEnv(), "KUBECONFIG="+s.store.Kubeconfig(s.Record.Name), "KUBECACHEDIR="+filepath.Join(s.store.dir(s.Record.Name), "cache"))
	return cmd
}

// output runs kubectl and returns its standard output. Its standard error is in the error.
func (s *Session) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := s.kubectl(ctx, args...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil && ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if text := strings.TrimSpace(complaint.String()); err != nil && text != "" {
		err = errors.New(text)
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
		if ctx.Err() != nil || !strings.Contains(err.Error(), unknownKind) {
			return fmt.Errorf("applying %s: %w", path, err)
		}
		if lifecycle.Sleep(ctx, applyPause) != nil {
			return fmt.Errorf("applying %s: %w", path, err)
		}
	}
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
