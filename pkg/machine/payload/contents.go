package payload

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Component is a component of a build.
type Component struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Names of files that describe the payload. They are the first in the archive, so that they can be read quickly.
const (
	versionsName = "versions.json"
	licensesName = "licenses.txt"
)

// Versions lists the components of the payload, in the order in which they are printed.
func Versions() ([]Component, error) {
	data, err := readPart(versionsName)
	if err != nil {
		return nil, err
	}
	var list []Component
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("reading the list of versions: %w", err)
	}
	return list, nil
}

// Licenses returns the licence texts of everything in the build.
func Licenses() ([]byte, error) { return readPart(licensesName) }

// readPart returns one file of the payload without unpacking it.
func readPart(name string) ([]byte, error) {
	p, ok, err := own()
	if err != nil {
		return nil, err
	}
	if !ok {
		dir, err := elsewhere()
		if err != nil {
			return nil, err
		}
		return os.ReadFile(filepath.Join(dir, name))
	}
	return p.part(name)
}

func (p payload) part(name string) ([]byte, error) {
	a, err := p.archive(context.Background(), nil)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	in := tar.NewReader(a)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the payload has no %s", name)
		}
		if err == nil && h.Name == place+name {
			var data []byte
			if data, err = io.ReadAll(in); err == nil {
				return data, nil
			}
		}
		if err != nil {
			if damage := p.verify(); damage != nil {
				return nil, damage
			}
			return nil, fmt.Errorf("reading the payload in %s: %w", p.executable, err)
		}
	}
}
