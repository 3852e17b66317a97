package payload

import (
	"os"
	"path/filepath"
)

// Cache is the directory to which Locate unpacks for a command of this user; "" if he has none.
func Cache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "coracle")
}
