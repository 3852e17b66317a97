package coracletest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// executable returns the path of coracle for Linux.
func executable(ctx context.Context, given string) (string, error) {
	if given = cmp.Or(given, os.Getenv("CORACLE")); given != "" {
		path, err := exec.LookPath(given)
		if err != nil {
			return "", fmt.Errorf("CORACLE, or Options.Executable, does not name an executable: %w", err)
		}
		return filepath.Abs(path)
	}
	if path, err := exec.LookPath("coracle"); err == nil && runtime.GOOS == "linux" {
		return filepath.Abs(path)
	}
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	path, err := defaultSource().fetch(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("coracle is not in PATH, CORACLE does not name it, and a release cannot be downloaded: %w", err)
	}
	return path, nil
}

// cacheDir is the directory of this user for releases, and for files that containers share.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "coracletest")
	return dir, os.MkdirAll(dir, 0o700)
}
