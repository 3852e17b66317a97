package images

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// refName completes the short image names in OCI layouts.
type refName struct {
	stem string // the file's name without extensions, for images without a name
}

// translate completes the name of an image in an OCI layout, which may be a full name or only a tag.
func (n refName) translate(name string) string {
	if strings.ContainsAny(name, "/:") {
		if ref, err := reference.ParseDockerRef(name); err == nil {
			return ref.String()
		}
		return name
	}
	return "localhost/" + n.stem + ":" + name
}

// byDigest returns the name for an image without a name.
func (n refName) byDigest(d digest.Digest) string { return "localhost/" + n.stem + "@" + d.String() }

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// stem returns a file's name without extensions, with only the characters that image names allow.
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
