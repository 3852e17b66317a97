package payload

import (
	"os"
	"path/filepath"
)

// Cache is the directory to which Locate unpacks for commands of this user; "" for a user without a cache directory.
func Cache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "coracle")
}
