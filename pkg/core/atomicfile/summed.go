package atomicfile

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"strings"
)

// WriteSummed writes a line of text with a checksum of its own.
func WriteSummed(path, text string, mode fs.FileMode) error {
	return Write(path, fmt.Appendf(nil, "%s %08x\n", text, crc32.ChecksumIEEE([]byte(text))), mode)
}

// ReadSummed reads what WriteSummed wrote. It reports whether there is such a file that is not damaged.
func ReadSummed(path string) (text string, ok bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	at := strings.LastIndexByte(string(data), ' ')
	if at < 0 || fmt.Sprintf(" %08x\n", crc32.ChecksumIEEE(data[:at])) != string(data[at:]) {
		return "", false, nil
	}
	return string(data[:at]), true, nil
}
