// Command registry serves the images of OCI archives, read-only, for pods that pull an image although it was imported.
// It ends with the process that has started it.
//
//	registry ADDRESS ARCHIVE...
package main

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: registry ADDRESS ARCHIVE...")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func serve(address string, archives []string) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	r := registry{}
	for _, archive := range archives {
		if err := r.add(archive); err != nil {
			return fmt.Errorf("reading %s: %w", archive, err)
		}
	}
	return http.ListenAndServe(address, r)
}

// registry are the blobs and manifests by their paths, as in "/v2/team/app/blobs/sha256:…".
type registry map[string]content

// content is a part of an archive.
type content struct {
	media, digest string
	io.ReaderAt
	offset, size int64
}

// ServeHTTP answers requests of the API for pulling.
func (r registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/v2/" {
		return
	}
	c, ok := r[req.URL.Path]
	if !ok {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", c.media)
	w.Header().Set("Docker-Content-Digest", c.digest)
	http.ServeContent(w, req, "", time.Time{}, io.NewSectionReader(c, c.offset, c.size))
}

// add adds the images of an archive, which stays open. Their names are in the index, with the registry.
func (r registry) add(archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	parts, index, err := contents(f)
	if err != nil {
		return err
	}
	for _, m := range index.Manifests {
		_, name, _ := strings.Cut(m.Annotations["io.containerd.image.name"], "/")
		repository, tag, ok := strings.Cut(name, ":")
		if !ok {
			return fmt.Errorf("the image %s has no name with a registry and a tag", m.Digest)
		}
		base := "/v2/" + repository
		for digest, c := range parts {
			c.digest, c.media = digest, "application/octet-stream"
			r[base+"/blobs/"+digest] = c
		}
		c := parts[m.Digest.String()]
		c.digest, c.media = m.Digest.String(), m.MediaType
		r[base+"/manifests/"+tag], r[base+"/manifests/"+c.digest] = c, c
	}
	return nil
}

// contents finds the blobs in an archive, by their digests, and reads its index.
func contents(f *os.File) (blobs map[string]content, index ocispec.Index, err error) {
	blobs = map[string]content{}
	for t := tar.NewReader(f); ; {
		header, err := t.Next()
		if err == io.EOF {
			return blobs, index, nil
		}
		if err != nil {
			return nil, index, err
		}
		if header.Name == ocispec.ImageIndexFile {
			if err := json.NewDecoder(t).Decode(&index); err != nil {
				return nil, index, err
			}
		}
		at, err := f.Seek(0, io.SeekCurrent) // the reader reads no further than the header
		if err != nil {
			return nil, index, err
		}
		if dir, sum := path.Split(header.Name); dir == "blobs/sha256/" && sum != "" {
			blobs["sha256:"+sum] = content{ReaderAt: f, offset: at, size: header.Size}
		}
	}
}
