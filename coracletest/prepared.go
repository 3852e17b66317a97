package coracletest

import (
	"cmp"
	"context"
	"slices"
)

// Prepared is a cluster with images, objects and volumes from which others start, each independent, with keys of its own.
type Prepared struct {
	snapshot string
	run      *run

	// replay says that there is no snapshot, because the clusters are in containers: each one is prepared anew.
	replay  bool
	options Options
	setup   func(*Cluster) error
}

// Prepare makes a cluster, calls setup, and keeps a snapshot of the cluster until the end of the test. setup may be nil.
func Prepare(t TB, o Options, setup func(*Cluster) error) *Prepared {
	t.Helper()
	if o.Artifacts == "" {
		o.Artifacts = artifactDir(t)
	}
	p, err := NewPrepared(context.Background(), o, setup)
	if err != nil {
		t.Fatalf("coracletest: preparing a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Logf("coracletest: removing the prepared cluster: %v", err)
		}
	})
	return p
}

// NewPrepared is Prepare without a test. The caller calls Close; if the process ends without it, the snapshot is removed too.
func NewPrepared(ctx context.Context, o Options, setup func(*Cluster) error) (*Prepared, error) {
	if needsEngine() {
		return &Prepared{replay: true, options: o, setup: setup}, nil
	}
	c, err := New(ctx, o)
	if err != nil {
		return nil, err
	}
	kept := false
	defer func() { // also if setup calls t.Fatal
		if !kept {
			_ = c.run.stop(false)
		}
	}()
	if setup != nil {
		if err := setup(c); err != nil {
			return nil, err
		}
	}
	p := &Prepared{run: c.run}
	if p.snapshot, err = c.run.snapshot(); err != nil {
		return nil, err
	}
	kept = true
	return p, nil
}

// again makes a prepared cluster from its beginnings.
func (p *Prepared) again(ctx context.Context, o Options) (*Cluster, error) {
	c, err := New(ctx, p.with(o))
	if err != nil || p.setup == nil {
		return c, err
	}
	kept := false
	defer func() { // also if setup calls t.Fatal
		if !kept {
			_ = c.run.stop(false)
		}
	}()
	if err := p.setup(c); err != nil {
		return nil, err
	}
	kept = true
	return c, nil
}

// with returns the options of a cluster from the prepared one that is made from its beginnings.
func (p *Prepared) with(o Options) Options {
	o.From = nil
	o.Nodes, o.Servers = max(p.options.Nodes, o.Nodes), p.options.Servers
	o.Images, o.Manifests = slices.Concat(p.options.Images, o.Images), slices.Concat(p.options.Manifests, o.Manifests)
	o.Rollout = p.options.Rollout || o.Rollout
	o.Config, o.Executable = cmp.Or(o.Config, p.options.Config), cmp.Or(o.Executable, p.options.Executable)
	return o
}

// Close removes the snapshot. Clusters that started from it do not need it.
func (p *Prepared) Close() error {
	if p.run == nil {
		return nil
	}
	return p.run.stop(true)
}

// snapshot makes a snapshot of the cluster, which is removed.
func (r *run) snapshot() (string, error) {
	if _, err := r.stdin.Write([]byte("snapshot\n")); err != nil {
		return "", err
	}
	var made struct {
		Snapshot string `json:"snapshot"`
	}
	err := r.read(&made)
	return made.Snapshot, err
}
