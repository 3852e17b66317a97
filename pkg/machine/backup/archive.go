package backup

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/throttle"
)

// Write makes a backup of the files that Gather has found, encrypted with keys. The backup appears only when it is complete and verified. The keys
// that are returned open it, also if its recipients' private keys are not known here.
func Write(path string, keys Keys, m Manifest, files []File) (Keys, error) {
	for i := range files {
		if err := files[i].describe(); err != nil {
			return keys, err
		}
	}
	m.Files = files
	err := atomicfile.WriteWith(path, 0o600, func(out *os.File) (err error) {
		if keys, err = m.write(out, keys); err == nil {
			err = out.Sync()
		}
		if err == nil {
			_, err = Verify(out.Name(), keys)
		}
		if err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
		return nil
	})
	return keys, err
}

// describe sets size, mode and checksum of the file.
func (f *File) describe() error {
	in, err := f.open()
	if err != nil {
		return err
	}
	defer in.Close()
	f.Mode = f.mode
	if file, ok := in.(*os.File); ok {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		f.Mode = info.Mode().Perm()
	}
	h := sha256.New()
	if f.Size, err = io.Copy(h, in); err != nil {
		return fmt.Errorf("reading %s: %w", f.Name, err)
	}
	f.SHA256 = hex.EncodeToString(h.Sum(nil))
	return nil
}

func (m Manifest) write(out io.Writer, keys Keys) (Keys, error) {
	sealed, keys, err := keys.encrypt(out)
	if err != nil {
		return keys, err
	}
	packed, err := newCompressor(sealed)
	if err != nil {
		return keys, err
	}
	return keys, errors.Join(m.tar(packed), packed.Close(), sealed.Close())
}

func newCompressor(out io.Writer) (*zstd.Encoder, error) {
	return zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20))
}

func (m Manifest) tar(out io.Writer) error {
	archive := tar.NewWriter(out)
	text, err := m.encode()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: manifestName, Mode: 0o600, Size: int64(len(text)), ModTime: m.Created}); err != nil {
		return err
	}
	if _, err := archive.Write(text); err != nil {
		return err
	}
	for _, f := range m.Files {
		if err := f.add(archive, m); err != nil {
			return fmt.Errorf("adding %s: %w", f.Name, err)
		}
	}
	return archive.Close()
}

// add writes as many bytes of a file as it had when it was described. If it has changed since, Verify fails.
func (f File) add(archive *tar.Writer, m Manifest) error {
	in, err := f.open()
	if err != nil {
		return err
	}
	defer in.Close()
	if err := archive.WriteHeader(&tar.Header{Name: f.Name, Mode: int64(f.Mode), Size: f.Size, ModTime: m.Created}); err != nil {
		return err
	}
	_, err = io.CopyN(archive, in, f.Size)
	return err
}

// archive is a backup that is being read.
type archive struct {
	path string
	file *os.File
	zstd *zstd.Decoder
	tar  *tar.Reader
}

func open(path string, keys Keys) (*archive, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	in, err := keys.decrypt(f)
	if err != nil {
		f.Close()
		if errors.As(err, new(keyError)) {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return nil, damaged(path, err)
	}
	unpacked, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		f.Close()
		return nil, err
	}
	return &archive{path, f, unpacked, tar.NewReader(unpacked)}, nil
}

func (a *archive) close() {
	a.zstd.Close()
	a.file.Close()
}

// damaged wraps an error of reading.
func (a *archive) damaged(err error) error { return damaged(a.path, err) }

func damaged(path string, err error) error {
	return fmt.Errorf("%s is not a backup of coracle, or is damaged: %w", path, err)
}

// manifestLimit prevents that a file of another kind fills the memory.
const manifestLimit = 16 << 20

func (a *archive) manifest() (m Manifest, err error) {
	h, err := a.tar.Next()
	if err != nil {
		return m, a.damaged(err)
	}
	if h.Name != manifestName {
		return m, a.damaged(fmt.Errorf("it begins with %q", h.Name))
	}
	text, err := io.ReadAll(io.LimitReader(a.tar, manifestLimit))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, a.damaged(err)
	}
	return m, nil
}

// walk reads a backup and compares it with its manifest. place returns the path that a file is written to, "" for none; place
// may be nil.
func walk(path string, keys Keys, place func(File) (string, error), limit *throttle.Limit) (m Manifest, err error) {
	a, err := open(path, keys)
	if err != nil {
		return m, err
	}
	defer a.close()
	if m, err = a.manifest(); err != nil {
		return m, err
	}
	for _, f := range m.Files {
		h, err := a.tar.Next()
		if err != nil {
			return m, a.damaged(err)
		}
		if h.Name != f.Name || !fs.ValidPath(f.Name) {
			return m, a.damaged(fmt.Errorf("it has %q in the place of %q", h.Name, f.Name))
		}
		to := ""
		if place != nil {
			if to, err = place(f); err != nil {
				return m, err
			}
		}
		if err := a.read(f, to, limit); err != nil {
			return m, err
		}
	}
	if _, err := a.tar.Next(); !errors.Is(err, io.EOF) {
		return m, a.damaged(errors.Join(errors.New("there is data after its end"), err))
	}
	return m, nil
}

// read reads one file, and writes it to the path to unless that is "".
func (a *archive) read(f File, to string, limit *throttle.Limit) error {
	h := sha256.New()
	from, w := io.Reader(a.tar), io.Writer(h)
	var out *os.File
	if to != "" {
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		var err error
		if out, err = os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.Mode.Perm()); err != nil {
			return err
		}
		defer out.Close()
		from, w = limit.Reader(a.tar), io.MultiWriter(h, out)
	}
	_, err := io.Copy(w, from)
	var written *fs.PathError
	if errors.As(err, &written) {
		return err
	}
	if err != nil {
		return a.damaged(err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != f.SHA256 {
		return a.damaged(fmt.Errorf("the checksum of %s is wrong", f.Name))
	}
	if out == nil {
		return nil
	}
	return errors.Join(out.Chmod(f.Mode.Perm()), out.Sync(), out.Close())
}
