package images

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is CRI, by which the kubelet knows of images too.
type Runtime struct {
	cri.RuntimeServiceClient
	cri.ImageServiceClient
}

// Unused is an image that no container has, running or not.
type Unused struct {
	Names []string `json:"names"` // by tag; if there is none, by digest
	ID    string   `json:"id"`
	Size  uint64   `json:"size"` // bytes that its content takes
}

// FindUnused lists the images that no container uses, by name. Pinned ones, such as all that were imported, are among them
// only if imported is set, and never those that come with coracle, whose names begin with a prefix.
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

// Remove removes images under all of their names. It goes on after one that cannot be removed, and returns those that were.
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
