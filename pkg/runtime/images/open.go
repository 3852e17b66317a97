package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// open returns an archive as a stream. A directory in OCI layout is converted to an archive.
func open(path string, progress func(read, total int64)) (io.ReadCloser, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openLayout(path, progress)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return counted(f, info.Size(), progress), nil
}

// openLayout streams an OCI layout directory as a tar archive.
func openLayout(dir string, progress func(read, total int64)) (io.ReadCloser, error) {
	if _, err := os.Stat(filepath.Join(dir, "oci-layout")); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the directory is not in OCI layout: it has no oci-layout file")
	} else if err != nil {
		return nil, err
	}
	var total int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out, in := io.Pipe()
	go func() {
		w := tar.NewWriter(in)
		err := w.AddFS(os.DirFS(dir))
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			err = fmt.Errorf("reading %s: %w", dir, err)
		}
		in.CloseWithError(err)
	}()
	return counted(out, total, progress), nil
}

// counter calls progress for each read.
type counter struct {
	io.ReadCloser
	read, total int64
	progress    func(read, total int64)
}

func counted(r io.ReadCloser, total int64, progress func(read, total int64)) io.ReadCloser {
	if progress == nil {
		return r
	}
	return &counter{ReadCloser: r, total: total, progress: progress}
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.read += int64(n)
	c.progress(min(c.read, c.total), c.total) // tar headers are read but not part of total
	return n, err
}
