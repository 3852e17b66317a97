package supervise

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxLine is where an endless line is cut.
const maxLine = 64 << 10

// pump hands every line of f to line until the end of f, or until endPump says that no more will come. A last line
// without an end is handed over too.
func pump(f *os.File, line func(string)) {
	var lines splitter
	buf := make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		lines.add(buf[:n], line)
		if err != nil {
			break
		}
	}
	drain(f, buf, &lines, line)
	if len(lines.rest) > 0 {
		line(string(lines.rest))
	}
}

// endPump ends a pump whose writer is gone. Somebody the writer left behind may hold the pipe open for hours, so
// the pipe's end is not waited for; what is in the pipe is still read.
func endPump(f *os.File) { _ = f.SetReadDeadline(time.Unix(1, 0)) }

// drain reads what is in the pipe without waiting for more.
func drain(f *os.File, buf []byte, lines *splitter, line func(string)) {
	if f.SetReadDeadline(time.Time{}) != nil {
		return
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Read(int(fd), buf)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n <= 0 {
				return true
			}
			lines.add(buf[:n], line)
		}
	})
}

// splitter cuts a stream into lines.
type splitter struct{ rest []byte }

func (s *splitter) add(data []byte, line func(string)) {
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			s.rest = append(s.rest, data...)
			if len(s.rest) >= maxLine {
				line(string(s.rest))
				s.rest = s.rest[:0]
			}
			return
		}
		line(string(bytes.TrimSuffix(append(s.rest, data[:i]...), []byte("\r"))))
		s.rest = s.rest[:0]
		data = data[i+1:]
	}
}
