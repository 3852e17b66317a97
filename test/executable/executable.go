// Package executable writes programs for tests to run.
package executable

import (
	"os"
	"syscall"
)

// Write writes a program that can be executed as soon as it returns. The kernel refuses to execute a file (ETXTBSY) while any process
// has it open for writing, even a child of this one between fork and exec; so no process is forked meanwhile (golang/go#22315).
func Write(path string, program []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, program, 0o755)
}
