package imageimport

import (
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	archives "github.com/coracle-dev/coracle/pkg/runtime/images"
)

// stamp tells one state of a file from another without reading it. Links are resolved: the payload's directory has
// its digest in the name.
type stamp struct {
	File  string    `json:"file"`
	Size  int64     `json:"size"`
	Mtime time.Time `json:"mtime"`
}

// imported is what one file gave.
type imported struct {
	stamp
	Images []archives.Image `json:"images"`
}

// stampOf describes a file; a directory by the index in it.
func stampOf(file string) (stamp, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return stamp{}, err
	}
	info, err := os.Stat(real)
	if err == nil && info.IsDir() {
		info, err = os.Stat(filepath.Join(real, "index.json"))
	}
	if err != nil {
		return stamp{}, err
	}
	return stamp{File: real, Size: info.Size(), Mtime: info.ModTime().UTC()}, nil
}

// readIndex returns what was imported from which file. An index that cannot be read means work, not failure.
func readIndex(file string) map[string]imported {
	index := map[string]imported{}
	if _, err := atomicfile.ReadJSON(file, &index); err != nil {
		logrus.WithField("component", "images").WithError(err).Warn("reading what was imported before: importing all again")
		return map[string]imported{}
	}
	return index
}
