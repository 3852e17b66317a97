package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/filewatch"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// errReplaced ends the kubelet. Upstream's manager of its serving certificate, which is replaced or removed with that of the client, reads its file at
// the start only, and cannot be told to rotate.
var errReplaced = errors.New("its certificates were replaced, as by coracle certificate rotate: it starts again with others")

// awaitReplaced ends the kubelet when somebody else has replaced or removed its client certificate.
func (k Kubelet) awaitReplaced(ctx context.Context, current func() *tls.Certificate, end chan<- error) {
	file := filepath.Join(k.PKI, currentCert)
	inUse := func() bool {
		pair, err := tls.LoadX509KeyPair(file, file)
		used := current()
		return err == nil && used != nil && pair.Leaf.Equal(used.Leaf)
	}
	changes := filewatch.Changes(ctx, func() string { return filewatch.State(file) })
	for {
		// Its own rotation writes the file before it uses the certificate.
		if !inUse() && lifecycle.Sleep(ctx, filewatch.Interval) == nil && !inUse() {
			end <- errReplaced
			return
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return
		}
	}
}
