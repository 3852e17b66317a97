package confine

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// architecture lists the calls that only this architecture has, or names otherwise.
func architecture() []uint32 { return []uint32{unix.SYS_FSTATAT} }
