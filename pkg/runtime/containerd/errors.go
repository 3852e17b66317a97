package containerd

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// explain adds the fix to an error of containerd's start.
func (c Containerd) explain(err error) error {
	db := filepath.Join(c.Root, "io.containerd.metadata.v1.bolt", "meta.db")
	switch {
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch),
		strings.Contains(err.Error(), bolterrors.ErrInvalid.Error()):
		return c.damaged(db, err)
	case errors.Is(err, bbolt.ErrTimeout), strings.Contains(err.Error(), bbolt.ErrTimeout.Error()):
		return fmt.Errorf("its database %s is in use: another containerd works on the same directory (%w)", db, err)
	}
	return fmt.Errorf("setting up its services: %w", err)
}

func (c Containerd) damaged(db string, err error) error {
	return fmt.Errorf("its database %s is damaged: stop coracle, move %s away and start again; images and containers are then made anew (%w)", db, c.Root, err)
}
