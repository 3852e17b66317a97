package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/scripts/bundle/oci"
)

// list writes the list of an unpacked payload's files, for a front that uses the parts without unpacking, and prints
// the list's SHA-256. pkg/machine/payload reads it.
func list(dir, out string) error {
	type file struct {
		Size int64       `json:"size"`
		Mode fs.FileMode `json:"mode"`
	}
	files := map[string]file{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == out {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		mode := info.Mode()
		if mode.IsRegular() { // as in the archive
			if mode&0o111 != 0 {
				mode = 0o755
			} else {
				mode = 0o644
			}
		}
		files[name] = file{info.Size(), mode}
		return err
	})
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(files, "", " ")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	fmt.Println(hex.EncodeToString(sum[:]))
	return os.WriteFile(out, data, 0o644)
}

// productImage makes the image of coracle: one layer is the payload's archive itself, root is the other.
func productImage(arch, version, payload, root, config, out string) error {
	settings, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	if settings, err = dated(settings, arch); err != nil {
		return err
	}
	parts, err := payloadLayer(payload)
	if err != nil {
		return err
	}
	front, err := rootLayer(root, root+".tar.gz")
	if err != nil {
		return err
	}
	tag := strings.ReplaceAll(version, "+", "-") // tags have no "+"
	image := oci.Archive{
		Names: []string{"coracle:" + tag, "coracle:latest"}, Config: settings, Arch: arch, Layers: []oci.Layer{parts, front},
	}
	f, err := os.Create(out + ".new")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := image.Write(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	size, err := sizes(parts.File, front.File)
	if err != nil {
		return err
	}
	fmt.Printf("%s: a registry transfers %.1f MiB\n", filepath.Base(out), float64(size)/(1<<20))
	return os.Rename(out+".new", out)
}

// imageIndex makes one archive of the images for several architectures.
func imageIndex(out string, images []string) error {
	f, err := os.Create(out + ".new")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := oci.WriteIndex(f, images); err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Rename(out+".new", out))
}

// dated adds the fields that differ between builds to an image's configuration.
func dated(config []byte, arch string) ([]byte, error) {
	var all map[string]any
	if err := json.Unmarshal(config, &all); err != nil {
		return nil, fmt.Errorf("reading the image's configuration: %w", err)
	}
	epoch, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	all["created"] = time.Unix(epoch, 0).UTC().Format(time.RFC3339)
	all["architecture"], all["os"] = arch, "linux"
	return json.Marshal(all)
}

// payloadLayer is the payload's archive, and the same compressed with gzip, which is made only if it is missing or
// older.
func payloadLayer(payload string) (oci.Layer, error) {
	zstd := exec.Command("zstd", "-q", "-d", "-c", "--long=26", payload)
	data, err := zstd.Output()
	if err != nil {
		return oci.Layer{}, fmt.Errorf("decompressing %s: %w", payload, err)
	}
	layer := oci.Layer{DiffID: diffID(data), File: payload, Media: oci.MediaZstd, Docker: strings.TrimSuffix(payload, ".zst") + ".gz"}
	old, err := os.ReadFile(layer.Docker + ".key")
	if _, missing := os.Stat(layer.Docker); err == nil && missing == nil && string(old) == layer.DiffID {
		return layer, nil
	}
	packed, err := gzipped(data)
	if err != nil {
		return oci.Layer{}, err
	}
	return layer, errors.Join(os.WriteFile(layer.Docker, packed, 0o644), os.WriteFile(layer.Docker+".key", []byte(layer.DiffID), 0o644))
}

// rootLayer makes a layer of everything in a directory except the payload.
func rootLayer(root, out string) (oci.Layer, error) {
	var files []oci.File
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := oci.File{Path: name, Mode: int64(info.Mode().Perm()), Dir: d.IsDir()}
		switch {
		case f.Dir && info.Mode()&fs.ModeSticky != 0:
			f.Mode |= 0o1000
		case info.Mode().Type() == fs.ModeSymlink:
			f.Link, err = os.Readlink(path)
		case !f.Dir:
			f.Data, err = os.ReadFile(path)
		}
		files = append(files, f)
		return err
	})
	if err != nil {
		return oci.Layer{}, err
	}
	var b bytes.Buffer
	if err := oci.WriteTar(&b, files); err != nil {
		return oci.Layer{}, err
	}
	packed, err := gzipped(b.Bytes())
	if err != nil {
		return oci.Layer{}, err
	}
	return oci.Layer{DiffID: diffID(b.Bytes()), File: out, Media: oci.MediaGzip}, os.WriteFile(out, packed, 0o644)
}

func diffID(layer []byte) string {
	sum := sha256.Sum256(layer)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// gzipped compresses chunks in parallel, as members of one file.
func gzipped(data []byte) ([]byte, error) {
	parts := make([]bytes.Buffer, (len(data)+chunk-1)/chunk)
	errs := make([]error, len(parts))
	var running sync.WaitGroup
	limit := make(chan struct{}, runtime.NumCPU())
	for i := range parts {
		running.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			w := gzip.NewWriter(&parts[i])
			_, err := w.Write(data[i*chunk : min((i+1)*chunk, len(data))])
			errs[i] = errors.Join(err, w.Close())
		})
	}
	running.Wait()
	var out bytes.Buffer
	for i := range parts {
		if _, err := io.Copy(&out, &parts[i]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), errors.Join(errs...)
}

// sizes adds up the sizes of files.
func sizes(paths ...string) (sum int64, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}
