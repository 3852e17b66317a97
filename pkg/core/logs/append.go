package logs

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// appendMax is how many bytes a file of Bounded holds, and so the one before it.
const appendMax = 1 << 20

// Bounded returns a writer to f. If f is a log file that an init system without a journal has opened for appending and named after the service, as OpenRC
// does, and it is full, the writer copies it to PATH.1 and empties it: nobody else limits it while the service runs. Otherwise it is f.
func Bounded(f *os.File, service string) io.Writer {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if service == "" || err != nil || !strings.HasSuffix(path, "/"+service+".log") {
		return f
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	info, errStat := f.Stat()
	if err != nil || errStat != nil || flags&unix.O_APPEND == 0 || !info.Mode().IsRegular() {
		return f
	}
	return appended{f, path}
}

type appended struct {
	*os.File
	path string
}

// Write writes whole lines. The file may have other writers too.
func (a appended) Write(data []byte) (int, error) {
	if info, err := a.Stat(); err == nil && info.Size()+int64(len(data)) > appendMax {
		_ = a.keep() // as when the disk is full, which is a reason to empty it
		_ = a.Truncate(0)
	}
	return a.File.Write(data)
}

// keep copies the end of the file to PATH.1.
func (a appended) keep() error {
	from, err := os.Open(a.path)
	if err != nil {
		return err
	}
	defer from.Close()
	if size, err := from.Seek(0, io.SeekEnd); err == nil {
		_, _ = from.Seek(max(0, size-appendMax), io.SeekStart)
	}
	to, err := os.OpenFile(a.path+".1", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer to.Close()
	_, err = io.Copy(to, from)
	return err
}
