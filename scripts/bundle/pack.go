package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
)

// first are the payload's files about itself. They are at the beginning of the archive, so that reading one does not
// decompress the rest.
var first = []string{"versions.json", "licenses.txt"}

// place is the directory of the payload's files in a container image. All names in the archive begin with it, so that
// the archive itself is a layer of the image.
const place = "usr/lib/coracle"

// chunk is the number of bytes that are compressed at a time. Chunks are compressed in parallel and can be decompressed
// as one stream. Matches are not found across chunks, which costs 0.1 %.
const chunk = 64 << 20

// pack makes the payload archive from a directory, and OUT.stamp with its sum, size and unpacked size for the
// executable that carries it. The same files give the same bytes.
func pack(dir, level, out string) error {
	tarball := out + ".tar"
	unpacked, err := writeTar(dir, tarball)
	if err != nil {
		return fmt.Errorf("archiving %s: %w", dir, err)
	}
	defer os.Remove(tarball)
	key, err := packKey(tarball, level)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(out + ".key"); err == nil && string(old) == key {
		return nil // compressing takes minutes, and nothing has changed
	}
	parts, err := compress(tarball, level)
	if err != nil {
		return fmt.Errorf("compressing the payload: %w", err)
	}
	if err := os.RemoveAll(out + ".key"); err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	size := 0
	for _, part := range parts {
		if _, err := io.MultiWriter(f, sum).Write(part); err != nil {
			return err
		}
		size += len(part)
	}
	if err := f.Close(); err != nil {
		return err
	}
	stamp := fmt.Sprintf("%s:%d:%d", hex.EncodeToString(sum.Sum(nil)), size, unpacked)
	if err := os.WriteFile(out+".stamp", []byte(stamp), 0o644); err != nil {
		return err
	}
	return os.WriteFile(out+".key", []byte(key), 0o644)
}

// packKey identifies the content and the settings of a payload.
func packKey(tarball, level string) (string, error) {
	f, err := os.Open(tarball)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)) + " " + level, nil
}

// compress returns the compressed chunks of a file, in order.
func compress(path, level string) ([][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	parts := make([][]byte, (info.Size()+chunk-1)/chunk)
	errs := make([]error, len(parts))
	var running sync.WaitGroup
	limit := make(chan struct{}, runtime.NumCPU())
	for i := range parts {
		running.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			zstd := exec.Command("zstd", "-q", "-c", "--single-thread", "--ultra", "-"+level, "--long=26")
			zstd.Stdin = io.NewSectionReader(f, int64(i)*chunk, chunk)
			zstd.Stderr = os.Stderr
			parts[i], errs[i] = zstd.Output()
		})
	}
	running.Wait()
	return parts, errors.Join(errs...)
}

// writeTar archives a directory sorted by name, without times and owners, and returns the size of all files.
func writeTar(dir, out string) (size int64, err error) {
	var names []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err == nil && name != "." && !slices.Contains(first, name) {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	slices.Sort(names)
	f, err := os.Create(out)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := addParents(w, place); err != nil {
		return 0, err
	}
	for _, name := range slices.Concat(first, names) {
		n, err := addFile(w, dir, name)
		if err != nil {
			return 0, err
		}
		size += n
	}
	if err := w.Close(); err != nil {
		return 0, err
	}
	return size, f.Close()
}

// addParents adds a directory and all its parents.
func addParents(w *tar.Writer, dir string) error {
	for i, c := range dir + "/" {
		if c != '/' {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Name: dir[:i] + "/", Typeflag: tar.TypeDir, Mode: 0o755, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
	}
	return nil
}

func addFile(w *tar.Writer, dir, name string) (int64, error) {
	path := filepath.Join(dir, name)
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	h := &tar.Header{Name: place + "/" + name, Typeflag: tar.TypeReg, Mode: 0o644, Format: tar.FormatUSTAR}
	switch {
	case info.IsDir():
		h.Name, h.Typeflag, h.Mode = h.Name+"/", tar.TypeDir, 0o755
	case info.Mode().Type() == fs.ModeSymlink:
		if h.Linkname, err = os.Readlink(path); err != nil {
			return 0, err
		}
		h.Typeflag, h.Mode = tar.TypeSymlink, 0o777
	case info.Mode().IsRegular():
		h.Size = info.Size()
		if info.Mode()&0o111 != 0 {
			h.Mode = 0o755
		}
	default:
		return 0, fmt.Errorf("%s is neither file, directory nor link", path)
	}
	if err := w.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.Copy(w, f)
}

// sizeLimit is the maximum size of the executable with its payload, in bytes. At level 3 of zstd, at which CI builds, it is 1.22 times as large as at a
// release's level. Other levels of one digit have no limit.
const sizeLimit = 68 << 20

// limitAt returns the maximum size at a level of compression.
func limitAt(level string) int64 {
	switch {
	case level == "3":
		return sizeLimit * 122 / 100
	case len(level) == 1:
		return math.MaxInt64
	}
	return sizeLimit
}

// attach writes the executable with the payload, which was compressed at the given level.
func attach(front, payload, level, out string) error {
	temp := out + ".new"
	to, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer to.Close()
	var size int64
	for _, path := range []string{front, payload} {
		from, err := os.Open(path)
		if err != nil {
			return err
		}
		n, err := io.Copy(to, from)
		from.Close()
		if err != nil {
			return err
		}
		size += n
	}
	if err := to.Close(); err != nil {
		return err
	}
	if limit := limitAt(level); size > limit {
		os.Remove(temp)
		return fmt.Errorf("%s has %d bytes and may have %d with zstd -%s: see \"Size\" in docs/build.md", out, size, limit, level)
	}
	fmt.Printf("%s: %.1f MiB\n", filepath.Base(out), float64(size)/(1<<20))
	return os.Rename(temp, out)
}
