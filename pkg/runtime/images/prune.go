package images

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is the client of CRI, which the kubelet uses too.
type Runtime struct {
	cri.RuntimeServiceClient
	cri.ImageServiceClient
}

// Unused is an image that no container uses, running or not.
type Unused struct {
	Names []string `json:"names"` // the tags; without tags the digests
	ID    string   `json:"id"`
	Size  uint64   `json:"size"` // in bytes
}

// FindUnused returns the images that no container uses, sorted by name. Pinned images, such as all imported ones, are included only if
// imported is set. Images of coracle itself, whose names begin with prefix, are never included.
func FindUnused(ctx context.Context, r Runtime, imported bool, prefix string) ([]Unused, error) {
	containers, err := r.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	used := map[string]bool{}
	for _, c := range containers.Containers {
		used[c.ImageRef], used[c.ImageId], used[c.GetImage().GetImage()] = true, true, true
	}
	all, err := r.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	var out []Unused
	for _, img := range all.Images {
		names := slices.Concat(img.RepoTags, img.RepoDigests)
		own := slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, prefix) })
		has := used[img.Id] || slices.ContainsFunc(names, func(name string) bool { return used[name] })
		if own || has || img.Pinned && !imported {
			continue
		}
		u := Unused{Names: img.RepoTags, ID: img.Id, Size: img.Size}
		if len(u.Names) == 0 {
			u.Names = img.RepoDigests
		}
		if len(u.Names) == 0 {
			u.Names = []string{img.Id}
		}
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b Unused) int { return slices.Compare(a.Names, b.Names) })
	return out, nil
}

// Remove removes images with all of their names. It continues after an error, and returns the images that it removed.
func Remove(ctx context.Context, r Runtime, unused []Unused) (removed []Unused, err error) {
	var failed []error
	for _, u := range unused {
		_, err := r.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: u.ID}})
		if err != nil {
			failed = append(failed, fmt.Errorf("removing image %s: %w", u.Names[0], err))
			continue
		}
		removed = append(removed, u)
	}
	return removed, errors.Join(failed...)
}
