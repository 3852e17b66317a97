package clocks

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// vdso is what is known of the kernel's vDSO, which is the same in all processes but for its address.
type vdso struct {
	entry int64 // offset of the function that reads clocks
	room  int64 // offset of unused bytes, where the code goes that replaces it
}

// mark stands in front of the offset in a vDSO that was changed.
const mark = 0x6b636f6c63656e6f

// readVDSO finds the function and the room in this process' own vDSO.
func readVDSO() (*vdso, error) {
	if len(stub) == 0 {
		return nil, errors.New("the code for this architecture is not written")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("this needs root")
	}
	begin, end, err := mapped(os.Getpid())
	if err != nil {
		return nil, err
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	image := make([]byte, end-begin)
	if _, err := mem.ReadAt(image, begin); err != nil {
		return nil, fmt.Errorf("reading the vDSO: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("reading the vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("reading the vDSO: %w", err)
	}
	size := int64(len(stub) + 16)
	room := (int64(len(image)) - size) &^ 15
	if len(bytes.Trim(image[room:], "\x00")) > 0 {
		return nil, errors.New("the vDSO has no room")
	}
	for _, s := range symbols {
		if s.Name == symbol {
			return &vdso{entry: int64(s.Value), room: room}, nil
		}
	}
	return nil, fmt.Errorf("the vDSO has no %s", symbol)
}

// mapped returns where the vDSO of a process is.
func mapped(pid int) (begin, end int64, err error) {
	maps, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/maps")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			_, err = fmt.Sscanf(line, "%x-%x", &begin, &end)
			return begin, end, err
		}
	}
	return 0, 0, errNoVDSO
}

// errNoVDSO is the error for a process that is ending.
var errNoVDSO = fmt.Errorf("the process has no vDSO: %w", os.ErrNotExist)

// set makes a process see a clock that is off, also if its vDSO is unchanged yet. Then it must not be reading the clock just now.
func (v *vdso) set(pid int, off time.Duration) error {
	return v.write(pid, off, func(mem *os.File, begin int64) error {
		code := binary.LittleEndian.AppendUint64(bytes.Clone(stub), mark)
		code = binary.LittleEndian.AppendUint64(code, uint64(off))
		_, err := mem.WriteAt(code, begin+v.room)
		if err == nil {
			_, err = mem.WriteAt(jump(v.room-v.entry), begin+v.entry)
		}
		return err
	})
}

// adjust does the same to a process that runs. One whose vDSO is unchanged gets its clock when it starts its program.
func (v *vdso) adjust(pid int, off time.Duration) error {
	return v.write(pid, off, func(*os.File, int64) error { return nil })
}

// write changes the offset in a process' vDSO. It calls change if there is none.
func (v *vdso) write(pid int, off time.Duration, change func(mem *os.File, begin int64) error) error {
	begin, _, err := mapped(pid)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	at := begin + v.room + int64(len(stub))
	found := make([]byte, 8)
	_, err = mem.ReadAt(found, at)
	switch {
	case err != nil:
	case binary.LittleEndian.Uint64(found) == mark:
		_, err = mem.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(off)), at+8)
	default:
		err = change(mem, begin)
	}
	if err == nil {
		return nil
	}
	if now, _, gone := mapped(pid); gone != nil || now != begin { // it ended, or began another program
		return errNoVDSO
	}
	return fmt.Errorf("changing the vDSO of process %d: %w", pid, err)
}
