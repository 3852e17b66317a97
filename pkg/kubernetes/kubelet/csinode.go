package kubelet

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

// csiNodeTimeout limits how long a restarted kubelet leaves its Node as it was. It initializes its CSINode within milliseconds.
const csiNodeTimeout = 10 * time.Second

// csiNode follows the initialization of the kubelet's CSINode. The kubelet does that beside its first report of the Node's status, which says
// "CSINode is not yet initialized" if it comes first. A Node that was ready before the restart is then not ready until the next report 10 s
// later (kubernetes pkg/kubelet/kubelet_node_status.go, fastNodeStatusUpdate), and a node lifecycle controller that starts meanwhile, as in
// the upgrade of a server, marks the node's pods as not ready: their Services refuse connections.
type csiNode struct {
	once        sync.Once
	initialized chan struct{}
}

func newCSINode() *csiNode { return &csiNode{initialized: make(chan struct{})} }

// reports returns a transport that delays the first report of a Node that exists already until the CSINode is initialized.
func (c *csiNode) reports(next http.RoundTripper) http.RoundTripper { return csiNodeFirst{next, c} }

type csiNodeFirst struct {
	next http.RoundTripper
	csi  *csiNode
}

func (t csiNodeFirst) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return response, err
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/apis/storage.k8s.io/v1/csinodes") && r.URL.Query().Get("resourceVersion") != "0" && response.StatusCode < 300:
		// The request with version 0 only asks whether the API server answers; this is the last one of the initialization.
		t.csi.once.Do(func() { close(t.csi.initialized) })
	case r.Method == http.MethodPost && r.URL.Path == "/api/v1/nodes" && response.StatusCode == http.StatusConflict:
		t.csi.await(r.Context()) // the kubelet reports the status when it has read that the Node exists
	}
	return response, nil
}

// WrappedRoundTripper returns the transport for client-go, which closes its idle connections.
func (t csiNodeFirst) WrappedRoundTripper() http.RoundTripper { return t.next }

func (c *csiNode) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, csiNodeTimeout)
	defer cancel()
	select {
	case <-c.initialized:
	case <-ctx.Done():
	}
}
