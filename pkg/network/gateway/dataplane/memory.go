package dataplane

import (
	"io"
	"sync/atomic"
)

// memory bounds in bytes what is kept of the bodies of all requests together.
type memory struct {
	most int64
	used atomic.Int64
}

// maxPiece is the length in bytes of the pieces in which a body is kept.
const maxPiece = 4 << 10

func (m *memory) take(n int) bool {
	if m.used.Add(int64(n)) <= m.most {
		return true
	}
	m.give(n)
	return false
}

func (m *memory) give(n int) { m.used.Add(-int64(n)) }

// keep reads a body of a length as it comes, with memory for what has come only. The caller gives back len(kept). It is not whole when there is no
// memory for more.
func (m *memory) keep(body io.Reader, length int) (kept []byte, whole bool, err error) {
	for len(kept) < length {
		piece := min(maxPiece, length-len(kept))
		if room := cap(kept) - len(kept); room > 0 {
			piece = min(piece, room)
		}
		if !m.take(piece) {
			return kept, false, nil
		}
		at := len(kept)
		if cap(kept) == at { // not by append, which takes more than is counted
			kept = append(make([]byte, 0, at+piece), kept...)
		}
		n, err := io.ReadAtLeast(body, kept[at:at+piece], 1)
		m.give(piece - n)
		kept = kept[:at+n]
		if err != nil {
			return kept, false, err
		}
	}
	return kept, true, nil
}
