package bucket

import (
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/crypto/chacha20poly1305"
)

// PieceKey is the key of all pieces of a cluster.
type PieceKey [32]byte

// idSize is the size of a piece's name in bytes: nobody without the key can make two pieces of one name.
const idSize = 16

type id [idSize]byte

func (i id) String() string { return hex.EncodeToString(i[:]) }

// derive returns another key for one purpose.
func (k PieceKey) derive(purpose string) []byte {
	return sum(k[:], []byte("coracle bucket 1 "+purpose))
}

func sum(key []byte, data []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(data)
	return h.Sum(nil)
}

// sealer names, compresses and encrypts pieces. It is safe for concurrent use.
type sealer struct {
	names  []byte
	box    cipher.AEAD
	pack   *zstd.Encoder
	unpack *zstd.Decoder
}

func newSealer(k PieceKey) (*sealer, error) {
	box, err := chacha20poly1305.NewX(k.derive("pieces"))
	if err != nil {
		return nil, err
	}
	pack, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	unpack, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*largestPiece))
	return &sealer{k.derive("names"), box, pack, unpack}, err
}

func (s *sealer) id(piece []byte) (i id) {
	copy(i[:], sum(s.names, piece))
	return i
}

// seal returns the object of a piece.
func (s *sealer) seal(i id, piece []byte) []byte {
	nonce := make([]byte, chacha20poly1305.NonceSizeX, chacha20poly1305.NonceSizeX+len(piece))
	_, _ = rand.Read(nonce) // it never fails
	return s.box.Seal(nonce, nonce, s.pack.EncodeAll(piece, nil), i[:])
}

// open returns the piece of an object.
func (s *sealer) open(i id, object []byte) ([]byte, error) {
	if len(object) < chacha20poly1305.NonceSizeX {
		return nil, errors.New("it is cut off")
	}
	packed, err := s.box.Open(nil, object[:chacha20poly1305.NonceSizeX], object[chacha20poly1305.NonceSizeX:], i[:])
	if err != nil {
		return nil, errors.New("it is not what was written")
	}
	piece, err := s.unpack.DecodeAll(packed, nil)
	if err == nil && s.id(piece) != i {
		err = errors.New("it is another one's")
	}
	if err != nil {
		return nil, fmt.Errorf("it is not what was written: %w", err)
	}
	return piece, nil
}
