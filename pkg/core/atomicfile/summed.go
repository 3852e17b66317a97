package atomicfile

import (
	"bytes"
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

// errDamaged is the error of a file that was changed by other means than a program.
var errDamaged = errors.New("it is damaged: its checksum is another one than when it was written")

// SumJSON adds a checksum to JSON that ends with a line break: a line of blanks and tabs, which every reader of JSON ignores, also a former
// version of coracle.
func SumJSON(data []byte) []byte {
	sum := crc32.ChecksumIEEE(data)
	for bit := range 32 {
		data = append(data, " \t"[sum>>bit&1])
	}
	return append(data, '\n')
}

// CheckJSON compares a checksum of SumJSON. JSON without one is good.
func CheckJSON(data []byte) error {
	at := len(data) - 33
	if at < 1 || data[at-1] != '\n' || len(bytes.Trim(data[at:], " \t\n")) > 0 {
		return nil
	}
	if !bytes.Equal(SumJSON(bytes.Clone(data[:at])), data) {
		return errDamaged
	}
	return nil
}
