// Package manifests applies the objects of coracle's embedded files and of the files in the user's directory: with
// server-side apply when a file changes. It deletes objects that files no longer contain. docs/manifests.md is the
// contract. The embedded files and their variables are in the package manifests at the top of the module.
package manifests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	embedded "github.com/coracle-dev/coracle/manifests"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Manifests is the deployer.
type Manifests struct {
	// Kubeconfig is an administrator's, because manifests may contain anything.
	Kubeconfig string
	// Embedded are the files that come with coracle.
	Embedded []embedded.File
	// Dir is the user's directory. It is created if it is missing.
	Dir string
	// Copy is where it is read, if that is elsewhere.
	Copy string
	// Node is the name of this server, which tells its user files from those of other servers.
	Node string
	// Report receives the state of all files after each change; may be nil.
	Report func([]state.Manifest)
}

// embeddedPatience is how long readiness waits for embedded files that cannot be applied. A user's broken admission
// webhook must not keep a cluster from starting: often only a started cluster can cure it.
const embeddedPatience = 15 * time.Second

// read is where the user's directory is read.
func (m Manifests) read() string { return cmp.Or(m.Copy, m.Dir) }

// Run applies files until ctx is done. It is ready when the embedded files are applied, or after embeddedPatience.
func (m Manifests) Run(ctx context.Context, ready func()) error {
	d, err := m.deployer()
	if err != nil {
		return err
	}
	err = lifecycle.Until(ctx, "the inventory", func(ctx context.Context) (err error) {
		d.inventory, err = loadInventory(ctx, d.client, m.Node)
		return err
	})
	if err != nil {
		return err
	}
	changes, err := watchDir(ctx, m.read())
	if err != nil {
		return err
	}
	if err := d.deployEmbedded(ctx); err != nil {
		return err
	}
	ready()
	return d.follow(ctx, changes)
}

func (m Manifests) deployer() (*deployer, error) {
	config, err := clientcmd.BuildConfigFromFlags("", m.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", m.Kubeconfig, err)
	}
	config.UserAgent = "coracle-manifests"
	config.QPS = -1 // the API server has its own fairness
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client from %s: %w", m.Kubeconfig, err)
	}
	d := &deployer{Manifests: m, now: time.Now, files: map[fileID]*file{}, log: logrus.WithField("component", "manifests")}
	var errs [4]error
	d.client, errs[0] = kubernetes.NewForConfigAndClient(config, http)
	d.metadata, errs[1] = metadata.NewForConfigAndClient(metadata.ConfigFor(config), http)
	d.applier.dynamic, errs[2] = dynamic.NewForConfigAndClient(config, http)
	d.applier.discovery, errs[3] = discovery.NewDiscoveryClientForConfigAndClient(config, http)
	return d, errors.Join(errs[:]...)
}

// deployEmbedded returns when all embedded files are applied, or after embeddedPatience.
func (d *deployer) deployEmbedded(ctx context.Context) error {
	defer lifecycle.WaitingFor(ctx, "")
	for _, e := range d.Embedded {
		d.add(newFile(fileID{name: e.Name}, e.Data))
	}
	end := time.Now().Add(embeddedPatience)
	for {
		d.step(ctx)
		problem, next := d.firstProblem(), d.earliest(unfinished)
		if problem == "" {
			return nil
		}
		if next.After(end) { // even when a try would not help
			d.log.WithField("problem", problem).Warn("going on without all of coracle's own objects")
			return nil
		}
		lifecycle.WaitingFor(ctx, problem)
		if lifecycle.Sleep(ctx, time.Until(next)) != nil {
			return nil
		}
	}
}

// follow applies the user's files, and retries files that failed.
func (d *deployer) follow(ctx context.Context, changes <-chan struct{}) error {
	d.scan()
	kinds := &kindWatch{metadata: d.metadata, changed: make(chan struct{}, 1)}
	for ctx.Err() == nil {
		d.step(ctx)
		d.applier.forget()
		kinds.want(ctx, d.waitsForKind())
		retry := time.NewTimer(time.Until(d.due()))
		select {
		case <-ctx.Done():
		case <-changes:
			d.scan()
		case <-kinds.changed:
			d.wake()
		case <-retry.C:
		}
		retry.Stop()
	}
	return nil
}
