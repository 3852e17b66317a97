package imageimport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/distribution/reference"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	archives "github.com/coracle-dev/coracle/pkg/runtime/images"
)

// isList reports whether a file is a list of images to pull.
func isList(file string) bool { return filepath.Ext(file) == ".txt" }

// names reads a list with one image in each line. Empty lines and lines that begin with # are ignored. Names are completed as Docker
// does. The error has the line of an invalid name.
func names(file string) (out []string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	line := 0
	for text := range strings.Lines(string(data)) {
		line++
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		ref, err := reference.ParseDockerRef(text)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %q is not the name of an image: %w", file, line, text, err)
		}
		out = append(out, ref.String())
	}
	return out, nil
}

// pull pulls the images of a list through CRI, as the kubelet does, and returns them. It continues after an error.
func (c containerdImages) pull(ctx context.Context, file string) ([]archives.Image, error) {
	all, err := names(file)
	if err != nil {
		return nil, err
	}
	conn, ok := c.client.Conn().(grpc.ClientConnInterface)
	if !ok {
		return nil, errors.New("containerd's client does not speak gRPC")
	}
	var found []archives.Image
	var failed []error
	for _, name := range all {
		if _, err := cri.NewImageServiceClient(conn).PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: name}}); err != nil {
			failed = append(failed, fmt.Errorf("pulling %s: %w", name, err))
			continue
		}
		have, err := c.client.ImageService().Get(namespaces.WithNamespace(ctx, archives.Namespace), name)
		if err != nil {
			failed = append(failed, fmt.Errorf("looking for %s: %w", name, err))
			continue
		}
		found = append(found, archives.Image{Name: name, Digest: have.Target.Digest})
	}
	if len(failed) > 0 {
		return nil, fmt.Errorf("%s: %w; missing images are pulled again when the file changes, and at the next start", file, errors.Join(failed...))
	}
	return found, nil
}
