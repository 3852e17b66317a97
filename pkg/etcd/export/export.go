// Package export writes a snapshot of etcd's database as the stream of its entries in their order, and makes a database of such a stream
// again. Unlike the pages of the file, the stream stays the same wherever nothing was written between two snapshots, so that copies in
// pieces share nearly all pieces; and it has no unused pages.
package export

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	bolt "go.etcd.io/bbolt"
)

// magic begins each stream. Then follow, for each bucket, a 1 with its name and for each of its entries a 2 with key and value; a 0 ends the
// stream. Each text has its length before it, as a varint.
const magic = "etcd entries 1\n"

const (
	end    = 0
	bucket = 1
	entry  = 2
)

// Is reports whether a file is such a stream.
func Is(file string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(f, start); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false, err
	}
	return string(start) == magic, nil
}

// Write writes the entries of the database in file.
func Write(w io.Writer, file string) (err error) {
	defer func() {
		if p := recover(); p != nil { // bbolt panics at some kinds of damage
			err = fmt.Errorf("reading the snapshot %s: %v", file, p)
		}
	}()
	db, err := bolt.Open(file, 0o400, &bolt.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("opening the snapshot %s: %w", file, err)
	}
	defer db.Close()
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.WriteString(magic) // bufio keeps the first error
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			put(out, bucket, name)
			return b.ForEach(func(key, value []byte) error {
				if value == nil {
					return fmt.Errorf("the snapshot %s has a bucket in its bucket %s, as etcd's never have", file, name)
				}
				return put(out, entry, key, value)
			})
		})
	})
	return errors.Join(err, put(out, end), out.Flush())
}

func put(out *bufio.Writer, kind byte, texts ...[]byte) error {
	err := out.WriteByte(kind)
	for _, text := range texts {
		_, _ = out.Write(binary.AppendUvarint(nil, uint64(len(text))))
		_, err = out.Write(text)
	}
	return err
}

// The limits of one transaction, which is in memory until it is written, and of one text. etcd's requests have at most 1.5 MB by default, and 10 MB with
// the largest setting that it recommends.
const (
	step     = 8 << 20
	largest  = 64 << 20
	fullPage = 0.95 // keys come in their order: pages need no room for others between them
)

// Read makes the database of a stream in file, which must not exist. After an error there is no partial file.
func Read(r io.Reader, file string) (err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(in, start); err != nil || string(start) != magic {
		return errors.New("these are not the entries of an etcd, or of a later version of coracle")
	}
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s exists", file)
	}
	db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true})
	if err != nil {
		return fmt.Errorf("making the database %s: %w", file, err)
	}
	l := loader{db: db}
	if err = l.load(in); err == nil {
		err = db.Sync()
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return errors.Join(fmt.Errorf("making the database %s: %w", file, err), os.Remove(file))
	}
	return nil
}

// loader puts entries into a database, in transactions of a bounded size.
type loader struct {
	db   *bolt.DB
	tx   *bolt.Tx
	name []byte
	into *bolt.Bucket
	size int // bytes in tx
}

func (l *loader) load(in *bufio.Reader) (err error) {
	defer func() {
		if l.tx != nil {
			err = errors.Join(err, l.tx.Rollback())
		}
	}()
	for {
		kind, err := in.ReadByte()
		if err != nil {
			return fmt.Errorf("the entries end in the middle: %w", err)
		}
		switch kind {
		case end:
			return l.commit()
		case bucket:
			if l.name, err = text(in); err != nil {
				return err
			}
			l.into = nil
		case entry:
			key, errKey := text(in)
			value, errValue := text(in)
			if err := errors.Join(errKey, errValue); err != nil {
				return err
			}
			if err := l.begin(); err != nil {
				return err
			}
			if err := l.into.Put(key, value); err != nil {
				return err
			}
			if l.size += len(key) + len(value); l.size > step {
				if err := l.commit(); err != nil {
					return err
				}
			}
			continue
		default:
			return fmt.Errorf("the entries have a part of kind %d, which this version does not know", kind)
		}
		if err := l.begin(); err != nil { // also a bucket without entries is made
			return err
		}
	}
}

// begin makes l.into the bucket of the present transaction.
func (l *loader) begin() (err error) {
	if l.name == nil {
		return errors.New("the entries begin without a bucket")
	}
	if l.tx == nil {
		if l.tx, err = l.db.Begin(true); err != nil {
			return err
		}
	}
	if l.into == nil {
		if l.into, err = l.tx.CreateBucketIfNotExists(l.name); err != nil {
			return err
		}
		l.into.FillPercent = fullPage
	}
	return nil
}

func (l *loader) commit() error {
	if l.tx == nil {
		return nil
	}
	err := l.tx.Commit()
	l.tx, l.into, l.size = nil, nil, 0
	return err
}

func text(in *bufio.Reader) ([]byte, error) {
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return nil, fmt.Errorf("the entries end in the middle: %w", err)
	}
	if n > largest {
		return nil, fmt.Errorf("the entries have one of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(in, b); err != nil {
		return nil, fmt.Errorf("the entries end in the middle: %w", err)
	}
	return b, nil
}
