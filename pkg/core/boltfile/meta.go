package boltfile

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
)

// errNoDatabase is the error of a file without a valid meta page.
var errNoDatabase = errors.New("not a bbolt database")

// Numbers of bbolt's format, version 2; see its package internal/common.
const (
	magic, version = 0xED0CDAED, 2
	header         = 16 // of a page, and the size of an element and of a bucket's value
	metaSize       = 64
	branchPage     = 1
	leafPage       = 2
	freelistPage   = 16
	bucketElement  = 1
	noFreelist     = ^uint64(0)
	manyFree       = 0xFFFF // the first entry of the freelist is its length
)

type meta struct {
	pageSize                               int64
	root, freelist, highWater, transaction uint64
}

// readMeta returns the newer valid one of the two meta pages.
func readMeta(f io.ReaderAt, fileSize int64) (m meta, err error) {
	found := false
	for size := int64(1 << 10); size <= 1<<16; size *= 2 { // the second one lies where the first one says, if it can be read
		for _, at := range []int64{0, size} {
			page := make([]byte, header+metaSize)
			if _, err := f.ReadAt(page, at); err != nil {
				continue
			}
			b := page[header:]
			sum := fnv.New64a()
			_, _ = sum.Write(b[:56])
			u32, u64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
			if u32(b) != magic || u32(b[4:]) != version || u64(b[56:]) != sum.Sum64() || int64(u32(b[8:])) != size {
				continue
			}
			if tx := u64(b[48:]); !found || tx > m.transaction {
				m = meta{size, u64(b[16:]), u64(b[32:]), u64(b[40:]), tx}
				found = true
			}
		}
	}
	if !found || fileSize < 2*m.pageSize {
		return m, errNoDatabase
	}
	return m, nil
}
