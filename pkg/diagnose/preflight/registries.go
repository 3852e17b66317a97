package preflight

import (
	"errors"
	"os"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// Registries finds what is wrong with registries.yaml, with the line and the key, and whether others can read passwords
// in it. No file is as good as one.
func Registries(cfg config.Config) error {
	path := cfg.Dirs.Registries()
	file, err := registries.Load(path)
	if err != nil {
		return err
	}
	var wrong []error
	for _, text := range file.Warnings {
		wrong = append(wrong, Warning{errors.New(text)})
	}
	if info, err := os.Stat(path); err == nil && file.Secret() && info.Mode().Perm()&0o077 != 0 {
		wrong = append(wrong, Warning{trouble("consider who may have a copy, then: chmod 600 "+path,
			"%s holds a secret and others can read it (mode %#o)", path, info.Mode().Perm())})
	}
	return errors.Join(wrong...)
}
