package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// apiQueries are arguments of kubectl by the file for its output.
var apiQueries = map[string][]string{
	"nodes.txt":         {"describe", "nodes"},
	"events.txt":        {"get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp"},
	"pods.txt":          {"get", "pods", "--all-namespaces", "-o", "wide"},
	"pods-describe.txt": {"describe", "pods", "--all-namespaces"},
	"objects.yaml": {"get", "--all-namespaces", "-o", "yaml",
		"pods,deployments,replicasets,daemonsets,statefulsets,jobs,cronjobs,services,endpointslices,ingresses,persistentvolumeclaims,persistentvolumes,configmaps"},
}

// Secrets returns the cluster's Secrets as a list in JSON, so that artifacts can be written without their values.
func (s *Session) Secrets(ctx context.Context) ([]byte, error) {
	return s.output(ctx, "get", "secrets", "--all-namespaces", "-o", "json")
}

// Collect writes the logs of the nodes and their pods, the nodes' states, events, and objects without Secrets to a directory, which it
// makes. It collects as much as it can; the error says what is missing.
func (s *Session) Collect(ctx context.Context, a Artifacts) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	errs := []error{a.mkdir(a.Dir)}
	do := func(what func() error) {
		all.Go(func() {
			err := what()
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		})
	}
	for file, args := range apiQueries {
		if a.Unsure {
			args = slices.Clone(args)
			args[len(args)-1] = strings.TrimSuffix(args[len(args)-1], ",configmaps")
		}
		do(func() error {
			out, err := s.output(ctx, args...)
			return errors.Join(err, a.write(file, out))
		})
	}
	r, err := s.store.Load(s.Record.Name)
	if err != nil {
		r = s.Record
	}
	for _, n := range r.Nodes {
		do(func() error { return s.collectNode(ctx, n, a) })
	}
	do(func() error { return a.copy(s.store.holderLog(r.Name), "holder.log") })
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("collecting artifacts: %w", err)
	}
	return nil
}

// collectNode writes a node's logs and its state.
func (s *Session) collectNode(ctx context.Context, n Node, a Artifacts) error {
	dir := filepath.Join("nodes", strings.TrimPrefix(n.Name, s.Record.Name+"-"))
	statusFile := filepath.Join(dir, "status.txt")
	errLog := a.copy(s.store.NodeLog(s.Record.Name, n.Name), filepath.Join(dir, "coracle.log"))
	if n.PID == 0 {
		return errors.Join(errLog, a.write(statusFile, []byte("the node is down\n")))
	}
	errPods := copyPodLogs(n, filepath.Join(dir, "pods"), a)
	status, err := s.store.Command(s.Record.Name, n.Name, coraclePath, "status")
	var text bytes.Buffer
	if err == nil {
		status.Stdout = &text
		err = status.Start()
	}
	if err != nil {
		return errors.Join(errLog, errPods, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = status.Process.Kill() })
	defer stop()
	_ = status.Wait() // its exit code is the node's state, which is in the text too
	return errors.Join(errLog, errPods, a.write(statusFile, text.Bytes()))
}

// copyPodLogs copies the logs of all containers on a node, running or not: NAMESPACE_POD_UID/CONTAINER/N.log.
func copyPodLogs(n Node, to string, a Artifacts) error {
	if a.Unsure {
		return nil
	}
	from := fmt.Sprintf("/proc/%d/root/var/log/pods", n.PID)
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return a.copy(path, filepath.Join(to, strings.TrimPrefix(path, from)))
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no pod has run there, or its log was removed just now
	}
	return err
}

// keepLogs copies the logs of a cluster before it is removed to m.Logs, by default a new directory, and returns the directory; "" if there
// are no logs.
func (m Maker) keepLogs(name string) string {
	logs, err := os.ReadDir(m.Store.logs(name))
	if err != nil || len(logs) == 0 {
		return ""
	}
	a := m.Logs
	if a.Dir == "" {
		a.UID, a.GID = os.Geteuid(), os.Getegid()
		if a.Dir, err = os.MkdirTemp("", "coracle-"+name+"-logs-"); err != nil {
			return ""
		}
	}
	for _, l := range logs {
		_ = a.copy(filepath.Join(m.Store.logs(name), l.Name()), l.Name()) // some logs are better than none
	}
	return a.Dir
}

// Artifacts is a directory for a cluster's logs and state. Its files belong to the user who reads them.
type Artifacts struct {
	Dir      string
	UID, GID int
	Clean    func(string) string // removes secrets from what is written; nil keeps them
	Unsure   bool                // Clean does not know the cluster's Secrets: ConfigMaps and the logs of pods are left out
}

// mkdir makes a directory, and those above it.
func (a Artifacts) mkdir(dir string) error {
	if paths.Exists(dir) {
		return nil
	}
	if err := a.mkdir(filepath.Dir(dir)); err != nil {
		return err
	}
	return a.chown(dir, os.Mkdir(dir, 0o755), os.Lchown)
}

// chown gives a new directory to the user. made is the error of making it; that another goroutine has made it is no failure.
func (a Artifacts) chown(dir string, made error, chown func(path string, uid, gid int) error) error {
	if errors.Is(made, fs.ErrExist) {
		return nil
	}
	return errors.Join(made, chown(dir, a.UID, a.GID))
}

// write writes a file and makes its directories. Other users can write to the directory too, so symbolic links in it are not followed out
// of it.
func (a Artifacts) write(name string, data []byte) error {
	if err := a.mkdir(a.Dir); err != nil {
		return err
	}
	root, err := os.OpenRoot(a.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := a.within(root, filepath.Dir(name)); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if a.Clean != nil {
		data = []byte(a.Clean(string(data)))
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chown(a.UID, a.GID), f.Close())
}

// within makes a directory below the root.
func (a Artifacts) within(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if err := a.within(root, filepath.Dir(dir)); err != nil {
		return err
	}
	return a.chown(dir, root.Mkdir(dir, 0o755), root.Lchown)
}

// copy copies a file if it exists.
func (a Artifacts) copy(from, name string) error {
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, a.write(name, data))
}
