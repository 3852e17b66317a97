package coracletest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// notInNames matches what a namespace's name cannot contain.
var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// Namespace makes a namespace for a test or subtest, named after it, and removes it at its end. After a failure the namespace stays, so that its
// objects are in the cluster's artifacts.
func (c *Cluster) Namespace(t TB) string {
	t.Helper()
	name := namespaceFor(t.Name()) + "-" + strings.ToLower(rand.Text()[:6])
	if err := c.makeNamespace(context.Background(), name); err != nil {
		t.Fatalf("coracletest: making namespace %s: %v", name, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.Fail()
			return
		}
		if err := c.call(context.Background(), http.MethodDelete, "/api/v1/namespaces/"+name, nil); err != nil {
			t.Logf("coracletest: removing namespace %s: %v", name, err)
		}
	})
	return name
}

// namespaceFor returns the beginning of a namespace's name for a test. Ginkgo's BeforeSuite has none, and others are not in Latin letters.
func namespaceFor(test string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(test), "-"), "-")
	return cmp.Or(strings.TrimRight(name[:min(len(name), 40)], "-"), "test")
}

// makeNamespace makes a namespace in which pods can be created: it has its ServiceAccount.
func (c *Cluster) makeNamespace(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := c.call(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": name}})
	if err != nil {
		return err
	}
	return c.until(ctx, "/api/v1/namespaces/"+name+"/serviceaccounts/default", nil)
}

// poll is the pause between two requests that wait for something.
const poll = 50 * time.Millisecond

// until waits until there is an object at a path for which ok, which may be nil, returns true, also while the server of the path is unavailable (503).
func (c *Cluster) until(ctx context.Context, path string, ok func(object) bool) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	last := errors.New("no answer yet")
	for {
		var got object
		err := c.get(ctx, path, &got)
		if err == nil && (ok == nil || ok(got)) {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			var status *statusError
			if !errors.As(err, &status) || status.code != http.StatusNotFound && status.code != http.StatusServiceUnavailable {
				return err
			}
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; the last error: %w", path, context.Cause(ctx), last)
		}
	}
}
