package images

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// refName makes image names of the shorter ones that OCI layouts hold.
type refName struct {
	stem string // the file's name without extensions: what an image without a name is called
}

// translate completes the name that an OCI layout gives an image, which may be a whole name or a bare tag.
func (n refName) translate(name string) string {
	if strings.ContainsAny(name, "/:") {
		if ref, err := reference.ParseDockerRef(name); err == nil {
			return ref.String()
		}
		return name
	}
	return "localhost/" + n.stem + ":" + name
}

// byDigest names an image that the archive gives no name.
func (n refName) byDigest(d digest.Digest) string { return "localhost/" + n.stem + "@" + d.String() }

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// stem is the file's name without extensions, in the letters that image names allow.
func stem(path string) string {
	base := strings.ToLower(filepath.Base(filepath.Clean(path)))
	for _, ext := range []string{".zst", ".gz", ".tgz", ".tar", ".oci"} {
		base = strings.TrimSuffix(base, ext)
	}
	if base = strings.Trim(notInNames.ReplaceAllString(base, "-"), "-"); base == "" {
		return "image"
	}
	return base
}
