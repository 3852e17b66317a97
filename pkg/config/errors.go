package config

import (
	"errors"
	"syscall"
)

// isNotDir reports that a path goes through something that is no directory, as for FILE.d where FILE is /dev/null.
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
