// Package oci writes small container images as OCI layout archives, the same bytes for the same content. It needs
// no daemon and no registry.
package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
)

// File is one entry of an image's only layer.
type File struct {
	Path string // without a leading slash
	Mode int64  // permission bits
	Data []byte // a regular file's content
	Link string // not empty for a symbolic link
	Dir  bool
}

// Image is a single-layer image for one platform.
type Image struct {
	Name       string // the full name under which it is imported
	Arch       string // as GOARCH
	Entrypoint []string
	Cmd        []string
	Env        []string
	User       string
	WorkingDir string
	Labels     map[string]string
	Files      []File
}

// Media types of the OCI image specification.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

// Write writes the image as an OCI layout in a tar archive. The layer is not compressed, because the payload around it
// is.
func (i Image) Write(w io.Writer) error {
	layer, err := i.layer()
	if err != nil {
		return fmt.Errorf("writing layer of %s: %w", i.Name, err)
	}
	blobs := map[string][]byte{}
	var order []string
	blob := func(media string, data []byte) descriptor {
		sum := sha256.Sum256(data)
		digest := hex.EncodeToString(sum[:])
		blobs[digest] = data
		order = append(order, digest)
		return descriptor{MediaType: media, Digest: "sha256:" + digest, Size: len(data)}
	}
	layerDesc := blob(mediaLayer, layer)
	config := blob(mediaConfig, i.config(layerDesc.Digest))
	manifest := blob(mediaManifest, encode(map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest, "config": config, "layers": []descriptor{layerDesc},
	}))
	manifest.Platform = map[string]string{"architecture": i.Arch, "os": "linux"}
	manifest.Annotations = map[string]string{
		"io.containerd.image.name":          i.Name,
		"org.opencontainers.image.ref.name": i.Name[strings.LastIndexByte(i.Name, ':')+1:],
	}
	index := encode(map[string]any{
		"schemaVersion": 2, "mediaType": mediaIndex, "manifests": []descriptor{manifest},
	})

	files := []File{
		{Path: "blobs", Dir: true, Mode: 0o755},
		{Path: "blobs/sha256", Dir: true, Mode: 0o755},
		{Path: "index.json", Data: index, Mode: 0o644},
		{Path: "oci-layout", Data: []byte(`{"imageLayoutVersion":"1.0.0"}`), Mode: 0o644},
	}
	for _, digest := range order {
		files = append(files, File{Path: path.Join("blobs/sha256", digest), Data: blobs[digest], Mode: 0o644})
	}
	return WriteTar(w, files)
}

func (i Image) layer() ([]byte, error) {
	var b bytes.Buffer
	err := WriteTar(&b, i.Files)
	return b.Bytes(), err
}

func (i Image) config(diffID string) []byte {
	return encode(map[string]any{
		"architecture": i.Arch,
		"os":           "linux",
		"config": struct {
			User       string            `json:",omitempty"`
			Env        []string          `json:",omitempty"`
			Entrypoint []string          `json:",omitempty"`
			Cmd        []string          `json:",omitempty"`
			WorkingDir string            `json:",omitempty"`
			Labels     map[string]string `json:",omitempty"`
		}{i.User, i.Env, i.Entrypoint, i.Cmd, i.WorkingDir, i.Labels},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{diffID}},
	})
}

// encode returns the JSON of values that cannot fail to encode; maps are sorted.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// WriteTar writes files as a tar archive, without times and owners.
func WriteTar(w io.Writer, files []File) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: f.Path, Mode: f.Mode, Typeflag: tar.TypeReg, Size: int64(len(f.Data)), Format: tar.FormatUSTAR}
		switch {
		case f.Dir:
			h.Typeflag, h.Name = tar.TypeDir, f.Path+"/"
		case f.Link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.Data); err != nil {
			return err
		}
	}
	return t.Close()
}
