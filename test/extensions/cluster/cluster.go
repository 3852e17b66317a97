// Package cluster starts the clusters in which the examples of docs/extending are played, and plays the commands of their pages.
//
//	func Test(t *testing.T) {
//		c := cluster.Start(t, "admission", cluster.Options{Config: "config.yaml", Images: []string{"busybox"}})
//		c.Run(t, "sidecar", func(t *testing.T, s cluster.Space) {
//			s.Play(t, "A sidecar in each pod")
//		})
//	}
//
// The folder test/extensions/SUBJECT has the example and its test, docs/extending/SUBJECT.md is its page. The tests run with CORACLE, the path of an
// executable, and CORACLE_TEST_IMAGES, the directory that scripts/test-images makes.
package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/coracletest"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Options describe the cluster of an example. The zero value is one node with the default settings and no images.
type Options struct {
	// Nodes and Servers are as in coracletest.Options.
	Nodes, Servers int
	// Config is a file with settings of coracle; files that it names are relative to it.
	Config string
	// Images are names of test images: busybox and agnhost.
	Images []string
	// Archives are paths of further images.
	Archives []string
	// Manifests are files with objects that the cluster begins with.
	Manifests []string
}

// Cluster is the cluster of an example, and the example's page.
type Cluster struct {
	*coracletest.Cluster
	// Client has all rights.
	Client kubernetes.Interface
	// Dynamic has all rights, for custom resources.
	Dynamic dynamic.Interface

	page *page
}

// Start starts a cluster that goes with the test, and reads the page of the subject, whose files must be those of the test's folder.
func Start(t *testing.T, subject string, o Options) *Cluster {
	t.Helper()
	p, err := readPage(subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.check("."); err != nil {
		t.Error(err)
	}
	images := slices.Clone(o.Archives)
	for _, name := range o.Images {
		dir := os.Getenv("CORACLE_TEST_IMAGES")
		if dir == "" {
			t.Skip("CORACLE_TEST_IMAGES does not name the directory that scripts/test-images makes: run `make extensions`")
		}
		images = append(images, filepath.Join(dir, name+".tar"))
	}
	c := &Cluster{page: p}
	c.Cluster = coracletest.Start(t, coracletest.Options{Nodes: o.Nodes, Servers: o.Servers, Config: o.Config, Images: images, Manifests: o.Manifests})
	c.Client = kubernetes.NewForConfigOrDie(c.RESTConfig)
	c.Dynamic = dynamic.NewForConfigOrDie(c.RESTConfig)
	return c
}

// Program returns the path of a tool of the module, as go.mod lists them. CORACLE_TEST_TOOLS is the directory in which they are.
func Program(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("CORACLE_TEST_TOOLS")
	if dir == "" {
		t.Skip("CORACLE_TEST_TOOLS does not name the directory that has the module's tools: run `make extensions`")
	}
	return filepath.Join(dir, name)
}

// Space is a namespace of a cluster, for one subtest.
type Space struct {
	*Cluster
	// Namespace is that of commands which do not name one.
	Namespace string

	kubeconfig string
}

// Run runs a subtest in a namespace of its own.
func (c *Cluster) Run(t *testing.T, name string, test func(t *testing.T, s Space)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { test(t, c.Space(t)) })
}

// Space makes a namespace that goes with the test.
func (c *Cluster) Space(t *testing.T) Space {
	t.Helper()
	s := Space{Cluster: c, Namespace: c.Namespace(t), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	data, err := os.ReadFile(c.Kubeconfig)
	if err == nil {
		err = os.WriteFile(s.kubeconfig, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Kubectl(t, "config", "set-context", "--current", "--namespace", s.Namespace)
	return s
}

// Kubectl runs kubectl in the namespace and returns what it prints. The test fails if it does.
func (s Space) Kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.Try(t, "kubectl", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Try runs a command with the cluster's environment, in the namespace, and returns what it prints. The error of a failed one has that too.
func (s Space) Try(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cmd := s.Command(t.Context(), name, args...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+s.kubeconfig)
	data, err := cmd.CombinedOutput()
	out := strings.TrimSpace(string(data))
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return out, err
}

// Patience is how long Eventually waits: longer than the minute after which the kubelet looks again for containers to remove (ContainerGCPeriod).
const Patience = 90 * time.Second

// Eventually calls try until it returns nil. The test fails with the last error if that takes longer than Patience.
func Eventually(t *testing.T, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %v: %v", Patience, err)
		}
	}
}
