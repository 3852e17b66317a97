package clocks

import (
	"encoding/binary"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// watch tells of each program that is begun in a cgroup. It is a program in the kernel, which stops those of coracle's.
type watch struct {
	parts  []interface{ Close() error }
	events *ringbuf.Reader
	group  sync.WaitGroup
}

// watchExecs calls started, each time in a goroutine, for what is begun in a cgroup v2, given by its directory, and below it.
func watchExecs(cgroup string, started func(pid int, held bool)) (w *watch, err error) {
	w = &watch{}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	var stat unix.Stat_t
	if err := unix.Stat(cgroup, &stat); err != nil {
		return w, err
	}
	level := 0 // how deep the cgroup is below the root of its hierarchy
	for dir := cgroup; ; dir, level = filepath.Dir(dir), level+1 {
		var above unix.Stat_t
		if err := unix.Stat(filepath.Dir(dir), &above); err != nil {
			return w, err
		}
		if above.Dev != stat.Dev {
			break
		}
	}
	events, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 1 << 16})
	if err != nil {
		return w, err
	}
	w.parts = append(w.parts, events)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "execs", Type: ebpf.RawTracepoint, License: "Dual MIT/GPL", Instructions: instructions(events, stat.Ino, level),
	})
	if err != nil {
		return w, err
	}
	w.parts = append(w.parts, program)
	attached, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exec", Program: program})
	if err != nil {
		return w, err
	}
	w.parts = append(w.parts, attached)
	if w.events, err = ringbuf.NewReader(events); err != nil {
		return w, err
	}
	w.group.Go(func() {
		for {
			record, err := w.events.Read()
			if err != nil { // it was closed
				return
			}
			word := binary.LittleEndian.Uint64(record.RawSample)
			w.group.Go(func() { started(int(word>>32), uint32(word) != 0) })
		}
	})
	return w, nil
}

// instructions report process and program, and stop the process if the program's name begins with "coracle".
func instructions(events *ebpf.Map, cgroup uint64, level int) asm.Instructions {
	const name = "coracle\x00"
	return asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(level)),
		asm.FnGetCurrentAncestorCgroupId.Call(),
		asm.LoadImm(asm.R1, int64(cgroup), asm.DWord),
		asm.JNE.Reg(asm.R0, asm.R1, "end"),

		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, -16),
		asm.Mov.Imm(asm.R2, 16),
		asm.FnGetCurrentComm.Call(),
		asm.LoadMem(asm.R1, asm.RFP, -16, asm.DWord),
		asm.LoadImm(asm.R2, 0x00ffffffffffffff, asm.DWord),
		asm.And.Reg(asm.R1, asm.R2),
		asm.LoadImm(asm.R2, int64(binary.LittleEndian.Uint64([]byte(name))), asm.DWord),
		asm.Mov.Imm(asm.R6, 0),
		asm.JNE.Reg(asm.R1, asm.R2, "tell"),
		asm.Mov.Imm(asm.R6, 1),

		asm.FnGetCurrentPidTgid.Call().WithSymbol("tell"),
		asm.RSh.Imm(asm.R0, 32),
		asm.LSh.Imm(asm.R0, 32),
		asm.Or.Reg(asm.R0, asm.R6),
		asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, events.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.Mov.Imm(asm.R3, 8),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(),

		asm.JEq.Imm(asm.R6, 0, "end"),
		asm.Mov.Imm(asm.R1, int32(unix.SIGSTOP)),
		asm.FnSendSignal.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	}
}

// close ends the watch. What it has told of has its clock then.
func (w *watch) close() {
	for i := len(w.parts) - 1; i >= 0; i-- {
		_ = w.parts[i].Close()
	}
	if w.events != nil {
		_ = w.events.Close()
	}
	w.group.Wait()
}
