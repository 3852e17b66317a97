package payload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// installed describes an unpacked payload in a container image: its directory and the SHA-256 of the list of its files,
// separated by a colon. The build sets it with -ldflags -X; it is empty for other builds.
var installed string

// Unpacks reports whether this executable has a payload, which needs disk space.
func Unpacks() bool { return stamp != "" }

// elsewhere returns the directory with the programs for an executable without payload.
func elsewhere() (string, error) {
	if installed == "" {
		return beside()
	}
	dir, sum, ok := strings.Cut(installed, ":")
	if !ok {
		return "", fmt.Errorf("this build's stamp is %q, not directory:sum", installed)
	}
	if err := checkInstalled(dir, sum); err != nil {
		return "", fmt.Errorf("the programs in %s do not belong to this build of coracle: %w; get the image again, "+
			"and do not mount anything on that directory", dir, err)
	}
	return dir, nil
}

// checkInstalled compares names, sizes and modes of an unpacked payload's files with the list that the build made. The image's
// digests protect the content.
func checkInstalled(dir, sum string) error {
	list := filepath.Join(dir, listName)
	data, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != sum {
		return fmt.Errorf("%s is of another build", list)
	}
	var files map[string]unpackedFile
	if err := json.Unmarshal(data, &files); err != nil {
		return fmt.Errorf("reading %s: %w", list, err)
	}
	for name, want := range files {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if info.Size() != want.Size || info.Mode() != want.Mode {
			return fmt.Errorf("%s has %d bytes and mode %s, not %d and %s", name, info.Size(), info.Mode(), want.Size, want.Mode)
		}
	}
	return nil
}
