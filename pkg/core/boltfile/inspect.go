package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// summary is what a database contains.
type summary struct {
	transaction uint64 // the last one
	sum         uint64 // of the checksums of all pages in use
}

// walker goes through all pages that can be reached.
type walker struct {
	f    io.ReaderAt
	meta meta
	seen []uint64 // a bit for each page
	sum  uint64
	todo []subtree
	page []byte // room for the next one
}

// subtree is a page with the range of keys that it and the pages below it may have; nil is no limit.
type subtree struct {
	page     uint64
	min, end []byte
}

// inspect reads a whole database. Its error is ErrDamaged for what bbolt cannot have written.
func inspect(f *os.File) (summary, error) {
	info, err := f.Stat()
	if err != nil {
		return summary{}, err
	}
	m, err := readMeta(f, info.Size())
	if err != nil {
		return summary{}, err
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_WILLNEED) // in the order of the disk, not of the keys
	w := walker{f: f, meta: m}
	w.seen = make([]uint64, m.highWater/64+1)
	w.todo = append(w.todo, subtree{page: m.root})
	for len(w.todo) > 0 {
		next := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if err := w.visit(next); err != nil {
			return summary{}, fmt.Errorf("page %d: %w", next.page, err)
		}
	}
	if m.freelist != noFreelist {
		if err := w.freelist(); err != nil {
			return summary{}, fmt.Errorf("list of free pages: %w", err)
		}
	}
	return summary{m.transaction, w.sum}, nil
}

// impossible is ErrDamaged with what is wrong.
func impossible(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrDamaged)
}

// read returns a page with those that continue it, and notes them.
func (w *walker) read(id uint64) ([]byte, error) {
	if id < 2 || id >= w.meta.highWater {
		return nil, impossible("out of range")
	}
	if w.page == nil {
		w.page = make([]byte, w.meta.pageSize)
	}
	page := w.page
	if err := w.fill(page, id); err != nil {
		return nil, err
	}
	more := uint64(binary.NativeEndian.Uint32(page[12:]))
	if binary.NativeEndian.Uint64(page) != id || more >= w.meta.highWater-id {
		return nil, impossible("wrong header")
	}
	if more > 0 {
		page = make([]byte, int64(1+more)*w.meta.pageSize)
		if err := w.fill(page, id); err != nil {
			return nil, err
		}
	}
	for i := id; i <= id+more; i++ {
		if w.has(i) {
			return nil, impossible("used twice")
		}
		w.seen[i/64] |= 1 << (i % 64)
	}
	w.sum += uint64(crc32.Checksum(page, crc32.MakeTable(crc32.Castagnoli)))
	return page, nil
}

func (w *walker) fill(page []byte, id uint64) error {
	_, err := w.f.ReadAt(page, int64(id)*w.meta.pageSize)
	if errors.Is(err, io.EOF) {
		return impossible("the file ends before it")
	}
	return err
}

func (w *walker) has(id uint64) bool { return w.seen[id/64]&(1<<(id%64)) != 0 }

// visit checks a page and adds the pages below it to those to do.
func (w *walker) visit(s subtree) error {
	page, err := w.read(s.page)
	if err != nil {
		return err
	}
	return w.elements(page, s)
}

// elements checks the elements of a branch or leaf page, which may be a bucket's own inside a value.
func (w *walker) elements(page []byte, s subtree) error {
	u32 := binary.NativeEndian.Uint32
	kind, count := binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
	if kind != branchPage && kind != leafPage || kind == branchPage && count == 0 || header+header*count > len(page) {
		return impossible("wrong type or length")
	}
	if kind == branchPage {
		w.page = nil // its keys are the limits of the pages below it
	}
	before := s.min
	for i := range count {
		e := page[header+header*i:] // offsets are from an element's own start
		var at, keySize, valueSize uint64
		if kind == branchPage {
			at, keySize = uint64(u32(e)), uint64(u32(e[4:]))
		} else {
			at, keySize, valueSize = uint64(u32(e[4:])), uint64(u32(e[8:])), uint64(u32(e[12:]))
		}
		if at+keySize+valueSize > uint64(len(e)) {
			return impossible("element %d ends behind the page", i)
		}
		key := e[at : at+keySize]
		order := bytes.Compare(before, key)
		if order > 0 || order == 0 && i > 0 || s.end != nil && bytes.Compare(key, s.end) >= 0 {
			return impossible("element %d has a wrong key", i)
		}
		before = key
		switch {
		case kind == branchPage:
			if i > 0 {
				w.todo[len(w.todo)-1].end = key
			}
			w.todo = append(w.todo, subtree{binary.NativeEndian.Uint64(e[8:]), key, s.end})
		case u32(e) == bucketElement:
			if err := w.bucket(e[at+keySize:at+keySize+valueSize], i); err != nil {
				return err
			}
		case u32(e) != 0:
			return impossible("element %d is of an unknown type", i)
		}
	}
	return nil
}

// bucket checks the value of a bucket: the number of its page, or its only page itself.
func (w *walker) bucket(value []byte, element int) error {
	if len(value) < header {
		return impossible("element %d is a bucket without a page", element)
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		w.todo = append(w.todo, subtree{page: root})
		return nil
	}
	if len(value) < 2*header || binary.NativeEndian.Uint16(value[header+8:]) != leafPage {
		return impossible("element %d is a bucket without a page", element)
	}
	return w.elements(value[header:], subtree{})
}

// freelist checks that no page in use is in the list of free ones, which bbolt would overwrite.
func (w *walker) freelist() error {
	page, err := w.read(w.meta.freelist)
	if err != nil {
		return err
	}
	ids := page[header:]
	count := uint64(binary.NativeEndian.Uint16(page[10:]))
	if binary.NativeEndian.Uint16(page[8:]) != freelistPage {
		return impossible("wrong type")
	}
	if count == manyFree {
		count, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return impossible("it ends behind its page")
	}
	for i := range count {
		id := binary.NativeEndian.Uint64(ids[8*i:])
		if id < 2 || id >= w.meta.highWater || w.has(id) {
			return impossible("page %d is in use, or free twice", id)
		}
		w.seen[id/64] |= 1 << (id % 64)
	}
	return nil
}
