package images

import (
	"context"
	"fmt"
	"slices"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/opencontainers/go-digest"
)

// Listed is an image under one of its names.
type Listed struct {
	Name   string        `json:"name"`
	Digest digest.Digest `json:"digest"`
	Size   int64         `json:"size"` // bytes of the compressed content on this node
	Pinned bool          `json:"pinned"`
}

// List returns the images of Kubernetes' namespace, sorted by name. An image is listed by digest only if it has no tag.
func List(ctx context.Context, client *containerd.Client) ([]Listed, error) {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	all, err := client.ListImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	named := map[digest.Digest]bool{}
	for _, img := range all {
		if !strings.Contains(img.Name(), "sha256:") {
			named[img.Target().Digest] = true
		}
	}
	out := []Listed{}
	for _, img := range all {
		name := img.Name()
		if strings.HasPrefix(name, "sha256:") || strings.Contains(name, "@sha256:") && named[img.Target().Digest] {
			continue
		}
		size, err := img.Size(ctx)
		if err != nil {
			size = 0 // incomplete content
		}
		out = append(out, Listed{
			Name: name, Digest: img.Target().Digest, Size: size, Pinned: img.Labels()[pinnedLabel] == pinnedValue,
		})
	}
	slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
