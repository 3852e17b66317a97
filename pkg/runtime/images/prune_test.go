package images

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// machine is a CRI with some images and containers.
type machine struct {
	cri.RuntimeServiceClient
	cri.ImageServiceClient
	containers []*cri.Container
	images     []*cri.Image
	removed    []string
}

func (m *machine) ListContainers(context.Context, *cri.ListContainersRequest, ...grpc.CallOption) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: m.containers}, nil
}

func (m *machine) ListImages(context.Context, *cri.ListImagesRequest, ...grpc.CallOption) (*cri.ListImagesResponse, error) {
	return &cri.ListImagesResponse{Images: m.images}, nil
}

func (m *machine) RemoveImage(_ context.Context, r *cri.RemoveImageRequest, _ ...grpc.CallOption) (*cri.RemoveImageResponse, error) {
	if r.Image.Image == "sha256:stuck" {
		return nil, errors.New("it is stuck")
	}
	m.removed = append(m.removed, r.Image.Image)
	return &cri.RemoveImageResponse{}, nil
}

func TestPrune(t *testing.T) {
	m := &machine{
		containers: []*cri.Container{
			{ImageRef: "sha256:byref"}, {ImageId: "sha256:byid", Image: &cri.ImageSpec{Image: "x"}}, {Image: &cri.ImageSpec{Image: "byname.test/a:1"}},
		},
		images: []*cri.Image{
			{Id: "sha256:byref", RepoTags: []string{"a"}}, {Id: "sha256:byid", RepoTags: []string{"b"}}, {Id: "sha256:byname", RepoTags: []string{"byname.test/a:1"}},
			{Id: "sha256:pause", RepoTags: []string{"coracle.io/pause:1"}, Pinned: true},
			{Id: "sha256:imported", RepoTags: []string{"imported:1"}, Pinned: true},
			{Id: "sha256:stuck", RepoDigests: []string{"z@sha256:2"}, Size: 2},
			{Id: "sha256:free", RepoTags: []string{"free:1", "free:2"}, RepoDigests: []string{"free@sha256:1"}, Size: 40},
			{Id: "sha256:nameless"},
		},
	}
	r := Runtime{m, m}
	for imported, want := range map[bool]string{
		false: "free:1 free:2, sha256:nameless, z@sha256:2", true: "free:1 free:2, imported:1, sha256:nameless, z@sha256:2",
	} {
		unused, err := FindUnused(t.Context(), r, imported, "coracle.io/")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range unused {
			got = append(got, strings.Join(u.Names, " "))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("imported %t: %q", imported, got)
		}
		m.removed = nil
		removed, err := Remove(t.Context(), r, unused)
		if err == nil || !strings.Contains(err.Error(), "removing image z@sha256:2: it is stuck") || len(removed) != len(unused)-1 || !slices.Contains(m.removed, "sha256:free") {
			t.Errorf("removed %v, %v", removed, err)
		}
	}
}

func TestCompress(t *testing.T) {
	for name, want := range map[string]string{"a.tar": "text", "a.tar.gz": "\x1f\x8b", "a.tgz": "\x1f\x8b", "a.tar.zst": "\x28\xb5\x2f\xfd"} {
		var out strings.Builder
		w, err := Compress(name, &out)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, "text"); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s begins with %.4q, %v", name, out.String(), err)
		}
	}
}

// stuck is an image service that removes no image.
type stuck struct{ cri.ImageServiceClient }

func (stuck) RemoveImage(context.Context, *cri.RemoveImageRequest, ...grpc.CallOption) (*cri.RemoveImageResponse, error) {
	return nil, errors.New("it is stuck")
}

func TestRemoveNamesAllFailures(t *testing.T) {
	removed, err := Remove(t.Context(), Runtime{ImageServiceClient: stuck{}}, []Unused{{ID: "1", Names: []string{"a"}}, {ID: "2", Names: []string{"b"}}})
	if len(removed) != 0 || err == nil || err.Error() != "removing image a: it is stuck\nremoving image b: it is stuck" {
		t.Errorf("removed %v, %v", removed, err)
	}
}
