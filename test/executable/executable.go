// Package executable writes programs for tests to run.
package executable

import (
	"os"
	"syscall"
)

// Write writes a program. Its file is not inherited by a process that another test starts meanwhile: the kernel refuses to execute
// a file (ETXTBSY) as long as any process can write to it, also one that was forked and is not yet what it is to become
// (golang/go#22315).
func Write(path string, program []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, program, 0o755)
}
