package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// sizeLimit is larger than any executable of coracle. It prevents that a server fills the disk.
const sizeLimit = 1 << 30

// Progress is called with the number of bytes received, and the total, which is -1 if the server does not send it.
type Progress func(done, total int64)

// Fetch downloads the executable to file and returns its version. It replaces file only after it has checked the checksum and
// the signature. The directory of file must exist. progress may be nil. The error is an Untrusted if a checksum or the
// signature is wrong.
func (s Source) Fetch(ctx context.Context, file string, progress Progress) (version string, err error) {
	version, err = s.Resolve(ctx)
	if err != nil {
		return "", err
	}
	sums, err := s.sums(ctx, version)
	if err != nil {
		return "", fmt.Errorf("fetching %s: %w", version, err)
	}
	// The temporary file is beside the target, so that a full disk shows before anything is replaced.
	return version, atomicfile.WriteWith(file, 0o755, func(part *os.File) error {
		got, from, err := s.download(ctx, part, progress, version, Asset(s.arch()))
		if err != nil {
			return fmt.Errorf("fetching %s: %w", version, err)
		}
		return sums.check(Asset(s.arch()), got, from)
	})
}

// sums returns the checksums of a version, after it has checked that they are signed and of that version.
func (s Source) sums(ctx context.Context, version string) (Sums, error) {
	text, from, err := s.read(ctx, version, SumsFile)
	if err != nil {
		return nil, err
	}
	signature, _, err := s.read(ctx, version, SignatureFile)
	if err != nil {
		return nil, err
	}
	sums, err := Verify(text, signature, s.Key)
	if err != nil {
		return nil, fmt.Errorf("checking %s: %w", from, err)
	}
	return sums, sums.checkVersion(version, from)
}

// download copies a file and returns its SHA-256 in hexadecimal digits.
func (s Source) download(ctx context.Context, to io.Writer, progress Progress, elem ...string) (sum, from string, err error) {
	body, size, from, err := s.open(ctx, elem...)
	if err != nil {
		return "", from, err
	}
	defer body.Close()
	h := sha256.New()
	count := &counter{total: size, tell: progress}
	n, err := io.Copy(io.MultiWriter(to, h, count), io.LimitReader(body, sizeLimit+1))
	if err != nil {
		return "", from, fmt.Errorf("reading %s: %w", from, err)
	}
	if n > sizeLimit {
		return "", from, fmt.Errorf("reading %s: it is too large for an executable", from)
	}
	return hex.EncodeToString(h.Sum(nil)), from, nil
}

// counter reports the number of bytes that have been written to it.
type counter struct {
	done, total int64
	tell        Progress
}

func (c *counter) Write(p []byte) (int, error) {
	c.done += int64(len(p))
	if c.tell != nil {
		c.tell(c.done, c.total)
	}
	return len(p), nil
}
