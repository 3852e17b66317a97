// Package coracletest gives Go tests real Kubernetes clusters, with kubelet, DNS, Services and volumes. A cluster is ready after two to four seconds.
//
//	func TestOperator(t *testing.T) {
//		c := coracletest.Start(t, coracletest.Options{Images: []string{"testdata/app.tar"}, Manifests: []string{"../deploy"}})
//		client := kubernetes.NewForConfigOrDie(c.RESTConfig)
//		…
//	}
//
// The package links no Kubernetes server. It starts "coracle run", which makes the cluster and removes it when its standard input ends: after the
// test, and also when the test process panics, times out or is killed.
package coracletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// TB is the part of testing.TB that this package uses. Ginkgo's GinkgoT() has it too.
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(func())
	TempDir() string
}

// Options describe a cluster. The zero value is one node with the default settings.
type Options struct {
	// Nodes is the number of nodes, servers included; 0 is as many as servers. Servers is the number of servers; 0 is 1.
	Nodes, Servers int
	// Images are archives of container images, as docker save writes, that all nodes get.
	Images []string
	// Manifests are files or directories with objects that are applied before the cluster is handed over.
	Manifests []string
	// Rollout waits until all Deployments, DaemonSets and StatefulSets in the cluster are rolled out.
	Rollout bool
	// Config is a configuration file of coracle for the servers, or a directory with config.yaml and the files that it names, which servers see as
	// /etc/coracle; "" is none.
	Config string
	// From is a prepared cluster to start from; nil is an empty cluster. In a container, where it is prepared anew, Manifests are applied before its setup,
	// and otherwise after it.
	From *Prepared
	// Wait limits the time until the cluster can be used; 0 is two minutes.
	Wait time.Duration
	// Artifacts is a directory for logs, events and objects of a test that fails; "" is the test's artifact directory with "go test -artifacts", and
	// none otherwise.
	Artifacts string
	// Executable is the path of coracle; "" is $CORACLE, the coracle in PATH, or a verified release, in this order.
	Executable string
}

// Cluster is a running cluster.
type Cluster struct {
	// Name is the cluster's name for commands such as "coracle images load".
	Name string
	// RESTConfig has all rights.
	RESTConfig *rest.Config
	// Kubeconfig is the path of a kubeconfig with all rights.
	Kubeconfig string
	// Env has the variables for programs that use the cluster, as NAME=VALUE: KUBECONFIG, and a PATH with kubectl at its end.
	Env []string
	// Nodes are the cluster's nodes, the first server first.
	Nodes []Node

	run    *run
	failed atomic.Bool
}

// Node is a node of a cluster.
type Node struct {
	Name string `json:"name"`
	Role string `json:"role"` // server or agent
	IP   string `json:"ip"`
}

// Start returns a new cluster, which is removed at the end of the test. It fails the test if there cannot be one.
func Start(t TB, o Options) *Cluster {
	t.Helper()
	if o.Artifacts == "" {
		o.Artifacts = artifactDir(t)
	}
	began := time.Now()
	c, err := New(context.Background(), o)
	if err != nil {
		t.Fatalf("coracletest: %v", err)
	}
	t.Logf("coracletest: cluster %s is ready after %.1f s", c.Name, time.Since(began).Seconds())
	t.Cleanup(func() { c.end(t, o.Artifacts) })
	return c
}

// New is Start without a test, for TestMain. The caller calls Stop; if the process ends without it, the cluster is removed too.
func New(ctx context.Context, o Options) (*Cluster, error) {
	if o.From != nil && o.From.replay {
		return o.From.again(ctx, o)
	}
	r, err := startRun(ctx, o)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: r.access.Name, Kubeconfig: r.access.Kubeconfig, Nodes: r.access.Nodes, run: r}
	for name, value := range r.access.Env {
		c.Env = append(c.Env, name+"="+value)
	}
	if c.RESTConfig, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, errors.Join(fmt.Errorf("reading the cluster's kubeconfig: %w", err), r.stop(false))
	}
	c.RESTConfig.QPS = -1 // tests are not to wait for themselves
	if len(o.Manifests) > 0 {
		ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.Wait, 2*time.Minute))
		defer cancel()
		if err := c.until(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", areEstablished); err != nil {
			return nil, errors.Join(err, r.stop(false))
		}
	}
	return c, nil
}

// Stop removes the cluster. Artifacts are written if Fail was called.
func (c *Cluster) Stop() error { return c.run.stop(!c.failed.Load()) }

// Fail says that a test failed, so that Stop writes artifacts. Namespace and Start do so by themselves.
func (c *Cluster) Fail() { c.failed.Store(true) }

// end removes the cluster at the end of a test.
func (c *Cluster) end(t TB, artifacts string) {
	if t.Failed() {
		c.Fail()
	}
	if err := c.Stop(); err != nil {
		t.Logf("coracletest: removing the cluster: %v", err)
	}
	if c.failed.Load() && artifacts != "" {
		// The mark is that of the JUnit plug-ins of Jenkins and GitLab for files that belong to a test.
		t.Logf("coracletest: logs, events and objects of the cluster are in %s\n[[ATTACHMENT|%[1]s/objects.yaml]]", artifacts)
	}
}

// Command prepares a command with the cluster's environment. kubectl is found also where none is installed.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	for _, e := range c.Env {
		path, ok := strings.CutPrefix(e, "PATH=")
		if !ok || strings.ContainsRune(name, filepath.Separator) {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				name = found
				break
			}
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(cmd.Environ(), c.Env...)
	return cmd
}
