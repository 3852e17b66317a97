package imageimport

import (
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	archives "github.com/coracle-dev/coracle/pkg/runtime/images"
)

// stamp identifies a state of a file without reading it. File is the path without symbolic links, because the name of the payload's
// directory contains its digest.
type stamp struct {
	File  string    `json:"file"`
	Size  int64     `json:"size"`
	Mtime time.Time `json:"mtime"`
}

// imported are the images of one file.
type imported struct {
	stamp
	Images []archives.Image `json:"images"`
}

// stampOf returns the stamp of a file. That of a directory is the stamp of its index.
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

// readIndex returns the imported files. If the index cannot be read it is empty, and all files are imported again.
func readIndex(file string) map[string]imported {
	index := map[string]imported{}
	if _, err := atomicfile.ReadJSON(file, &index); err != nil {
		logrus.WithField("component", "images").WithError(err).Warn("reading what was imported before: importing all again")
		return map[string]imported{}
	}
	return index
}
