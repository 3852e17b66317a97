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

// installed is what the build says about a payload that lies unpacked where the executable is, as in a container image:
// the directory and the SHA-256 of the list of its files, separated by a colon. Set with -ldflags -X; empty in a
// build that carries its payload, or has none.
var installed string

// Unpacks reports whether this executable carries a payload, so that it will need room for it.
func Unpacks() bool { return stamp != "" }

// elsewhere returns the directory with the parts for an executable that carries no payload.
func elsewhere() (string, error) {
	if installed == "" {
		return beside()
	}
	dir, sum, ok := strings.Cut(installed, ":")
	if !ok {
		return "", fmt.Errorf("this build's stamp is %q, not directory:sum", installed)
	}
	if err := checkInstalled(dir, sum); err != nil {
		return "", fmt.Errorf("the parts in %s are not those that this coracle was built with: %w; get the image again, "+
			"and mount nothing over that directory", dir, err)
	}
	return dir, nil
}

// checkInstalled compares the files of an unpacked payload with the list that was made when it was built. It looks
// at names, sizes and modes: that the bytes are right is for who keeps the image.
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
