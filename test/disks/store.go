package disks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	fileName  = "disk"
	blockSize = 4096
	// cacheBlocks is how much a disk holds back until it is flushed; real ones have caches of about this size.
	cacheBlocks = 64 << 20 / blockSize
)

// store is a disk's content: what is safe in a file, and what was written since the last flush in memory.
type store struct {
	size int64
	file *os.File

	mu      sync.Mutex
	dirty   map[int64][]byte // by the number of the block
	off     bool             // the power is off
	writes  int
	flushes int
	failed  int

	failFrom, failTo int       // the writes with these numbers fail
	failFlush        int       // the flush with this number fails
	full             int       // from the write with this number on there is no room for new blocks
	stall            time.Time // flushes wait until then
}

func (s *store) set(do func(*store)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(s)
}

// cut drops what was not flushed, but for the blocks that are kept, and switches the disk off.
func (s *store) cut(keep float64, random *rand.Rand) (lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers := make([]int64, 0, len(s.dirty))
	for n := range s.dirty {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers) // so that the same seed keeps the same blocks
	for _, n := range numbers {
		if random.Float64() >= keep {
			delete(s.dirty, n)
			lost++
		}
	}
	if err := s.persist(); err != nil {
		panic(fmt.Sprintf("writing the disk's file: %v", err))
	}
	s.off = true
	return lost
}

// persist makes what was written safe.
func (s *store) persist() error {
	for n, block := range s.dirty {
		if _, err := s.file.WriteAt(block, n*blockSize); err != nil {
			return err
		}
	}
	clear(s.dirty)
	return nil
}

// block returns a block's present content, which may be changed.
func (s *store) block(n int64) ([]byte, error) {
	if b := s.dirty[n]; b != nil {
		return b, nil
	}
	b := make([]byte, blockSize)
	if _, err := s.file.ReadAt(b, n*blockSize); err != nil {
		return nil, err
	}
	return b, nil
}

func (s *store) read(data []byte, at int64) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off {
		return 0, syscall.EIO
	}
	for n < len(data) && at < s.size {
		b, err := s.block(at / blockSize)
		if err != nil {
			return n, err
		}
		k := copy(data[n:], b[at%blockSize:])
		n, at = n+k, at+int64(k)
	}
	return n, nil
}

func (s *store) write(data []byte, at int64) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.off {
		return 0, syscall.EIO
	}
	if s.failFrom <= s.writes && s.writes < s.failTo {
		s.failed++
		return 0, syscall.EIO
	}
	if 0 < s.full && s.full <= s.writes && !s.allocated(at, int64(len(data))) {
		s.failed++
		return 0, syscall.ENOSPC
	}
	for n < len(data) && at < s.size {
		number := at / blockSize
		b, err := s.block(number)
		if err != nil {
			return n, err
		}
		k := copy(b[at%blockSize:], data[n:])
		s.dirty[number] = b
		n, at = n+k, at+int64(k)
	}
	if len(s.dirty) > cacheBlocks {
		return n, s.persist()
	}
	return n, nil
}

// allocated reports whether all blocks of a range were written before: the others are holes of the file.
func (s *store) allocated(at, size int64) bool {
	for n := at / blockSize; n*blockSize < at+size; n++ {
		if s.dirty[n] != nil {
			continue
		}
		if found, err := unix.Seek(int(s.file.Fd()), n*blockSize, unix.SEEK_DATA); err != nil || found >= (n+1)*blockSize {
			return false
		}
	}
	return true
}

func (s *store) flush(ctx context.Context) error {
	s.mu.Lock()
	s.flushes++
	stall, number := time.Until(s.stall), s.flushes
	s.mu.Unlock()
	select {
	case <-time.After(stall):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if number == s.failFlush {
		s.failed++
	}
	if s.off || number == s.failFlush {
		return syscall.EIO
	}
	return s.persist()
}

// root is the FUSE file system: a directory with one file.
type root struct {
	fs.Inode
	store *store
}

// OnAdd makes the file.
func (r *root) OnAdd(ctx context.Context) {
	r.AddChild(fileName, r.NewPersistentInode(ctx, &file{store: r.store}, fs.StableAttr{}), false)
}

// file is the disk as a file.
type file struct {
	fs.Inode
	store *store
}

// Open makes the kernel keep nothing of the file in its own cache, which would outlive a power cut.
func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Getattr tells the file's size.
func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o600, uint64(f.store.size)
	return 0
}

// Setattr accepts and ignores changes, such as of times.
func (f *file) Setattr(ctx context.Context, h fs.FileHandle, _ *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return f.Getattr(ctx, h, out)
}

// Read reads blocks.
func (f *file) Read(_ context.Context, _ fs.FileHandle, data []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	n, err := f.store.read(data, at)
	return fuse.ReadResultData(data[:n]), fs.ToErrno(err)
}

// Write writes blocks.
func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, at int64) (uint32, syscall.Errno) {
	n, err := f.store.write(data, at)
	return uint32(n), fs.ToErrno(err)
}

// Fsync is a flush.
func (f *file) Fsync(ctx context.Context, _ fs.FileHandle, _ uint32) syscall.Errno {
	return fs.ToErrno(f.store.flush(ctx))
}
