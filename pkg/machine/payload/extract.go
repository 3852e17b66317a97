package payload

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// maxWindow is the largest window that the build's compressor uses.
const maxWindow = 1 << 26

// archive reads the payload decompressed.
type archive struct {
	payload payload
	raw     *meter
	zstd    *zstd.Decoder
	closer  io.Closer
}

func (p payload) archive(ctx context.Context, progress Progress) (*archive, error) {
	raw, closer, err := p.open()
	if err != nil {
		return nil, err
	}
	m := &meter{ctx: ctx, in: raw, total: p.size, progress: progress}
	decoder, err := zstd.NewReader(m, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		closer.Close()
		return nil, fmt.Errorf("opening the payload: %w", err)
	}
	return &archive{p, m, decoder, closer}, nil
}

func (a *archive) Read(b []byte) (int, error) { return a.zstd.Read(b) }

func (a *archive) Close() error {
	a.zstd.Close()
	return a.closer.Close()
}

// meter reads the archive's bytes and reports progress, until ctx is done.
type meter struct {
	ctx         context.Context
	in          io.Reader
	done, total int64
	progress    Progress
}

func (m *meter) Read(b []byte) (int, error) {
	if m.ctx.Err() != nil {
		return 0, context.Cause(m.ctx)
	}
	n, err := m.in.Read(b)
	m.done += int64(n)
	if m.progress != nil {
		m.progress(m.done, m.total)
	}
	return n, err
}

// verify compares the archive with the checksum of the build.
func (p payload) verify() error {
	raw, closer, err := p.open()
	if err != nil {
		return err
	}
	defer closer.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, raw); err != nil {
		return fmt.Errorf("reading the payload in %s: %w", p.executable, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != p.sum {
		return p.damaged(fmt.Errorf("its checksum is %.12s…, not %.12s…", got, p.sum))
	}
	return nil
}

// extract unpacks the payload to an empty directory and returns when everything is on disk. It verifies the archive at the same
// time, and returns the error of a damaged archive instead of the errors that the damage causes.
func extract(ctx context.Context, p payload, dir string, progress Progress) error {
	verified := make(chan error, 1)
	go func() { verified <- p.verify() }()
	err := unpackTo(ctx, p, dir, progress)
	if damage := <-verified; damage != nil {
		return damage
	}
	if err != nil {
		return fmt.Errorf("unpacking to %s: %w", filepath.Dir(dir), err)
	}
	return nil
}

func unpackTo(ctx context.Context, p payload, dir string, progress Progress) error {
	a, err := p.archive(ctx, progress)
	if err != nil {
		return err
	}
	defer a.Close()
	w := writer{dir: dir, files: map[string]unpackedFile{}}
	in := tar.NewReader(a)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(fmt.Errorf("reading the archive: %w", err), w.wait())
		}
		if err := w.entry(h, in); err != nil {
			return errors.Join(err, w.wait())
		}
	}
	if err := w.wait(); err != nil {
		return err
	}
	list, err := w.list()
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, listName), list, 0o644); err != nil {
		return err
	}
	return syncDirs(dir)
}

// writer writes an archive's entries to a directory. It syncs files while it writes the next ones.
type writer struct {
	dir     string
	files   map[string]unpackedFile // regular files and links, for the list
	syncing sync.WaitGroup
	mu      sync.Mutex
	err     error // the first of syncing
}

func (w *writer) entry(h *tar.Header, in io.Reader) error {
	name, ok := strings.CutPrefix(h.Name, place)
	if !ok && h.Typeflag == tar.TypeDir && strings.HasPrefix(place, h.Name) {
		return nil // a parent of the payload's directory
	}
	name = filepath.Clean(name)
	if !ok || !filepath.IsLocal(name) || strings.HasPrefix(name, listName) {
		return fmt.Errorf("the archive has a file %q", h.Name)
	}
	path := filepath.Join(w.dir, name)
	switch h.Typeflag {
	case tar.TypeDir:
		if name == "." {
			return nil
		}
		return os.Mkdir(path, 0o755)
	case tar.TypeSymlink:
		w.files[name] = unpackedFile{}
		return os.Symlink(h.Linkname, path)
	case tar.TypeReg:
		sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
		err := w.file(path, fs.FileMode(h.Mode).Perm(), io.TeeReader(in, sum))
		w.files[name] = unpackedFile{Sum: sum.Sum32()}
		return err
	}
	return fmt.Errorf("the archive has %s of unknown type %q", h.Name, h.Typeflag)
}

func (w *writer) file(path string, mode fs.FileMode, in io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if err := f.Chmod(mode); err != nil { // whatever the umask
		f.Close()
		return err
	}
	// A small buffer stays in the processor's cache.
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, in, make([]byte, 256<<10)); err != nil {
		f.Close()
		return err
	}
	w.syncing.Go(func() {
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.err == nil {
				w.err = err
			}
		}
	})
	return nil
}

// wait returns when every file is on disk.
func (w *writer) wait() error {
	w.syncing.Wait()
	return w.err
}

// list describes the files as they are now.
func (w *writer) list() ([]byte, error) {
	for name := range w.files {
		info, err := os.Lstat(filepath.Join(w.dir, name))
		if err != nil {
			return nil, err
		}
		file := describe(info)
		file.Sum = w.files[name].Sum
		w.files[name] = file
	}
	return json.MarshalIndent(w.files, "", " ")
}

// syncDirs makes the names in dir and its subdirectories durable.
func syncDirs(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return nil
		}
		return atomicfile.SyncDir(path)
	})
}
