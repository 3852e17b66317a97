package confine

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// architecture lists the calls that only this architecture has, or names otherwise.
func architecture() []uint32 { return []uint32{unix.SYS_ARCH_PRCTL, unix.SYS_NEWFSTATAT} }
