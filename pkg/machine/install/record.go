package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
)

// Record is what an installation made: what uninstall removes, and nothing else.
type Record struct {
	Service string      `json:"service"`
	Init    string      `json:"init"` // the init system's name; "" if coracle knows none on this machine
	Version string      `json:"version"`
	Role    config.Role `json:"role"`
	// Args are the role's arguments. There are no tokens in them: those are in the environment file.
	Args       []string   `json:"args"`
	Binary     string     `json:"binary"`
	Dirs       paths.Dirs `json:"dirs"`
	Kubeconfig string     `json:"kubeconfig,omitempty"`
	// Files are regular files. The executable's sum is of the file that was installed, not of what it was upgraded to.
	Files []File `json:"files"`
	Links []Link `json:"links"`
	// Made are directories that were not there before, parents first. They are removed when they are empty.
	Made []string `json:"directories"`
	// Complete is false while an installation is under way, and after one that was killed.
	Complete bool `json:"complete"`
}

// File is a file that install wrote.
type File struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// Link is a symbolic link that install made.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Store keeps the records of a machine.
type Store struct {
	// Root is put in front of all paths; "" except in tests.
	Root string
}

// recordDir is the directory of records. It is in coracle's configuration directory, which only root can write.
const recordDir = "/etc/coracle/install"

func (s Store) path(name string) string {
	return filepath.Join(s.Root, recordDir, name+".json")
}

// Load returns the record of a service; ok is false if there is none.
func (s Store) Load(name string) (r Record, ok bool, err error) {
	data, err := os.ReadFile(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("reading the record of the installation: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, false, fmt.Errorf("reading %s: %w", s.path(name), err)
	}
	return r, true, nil
}

// All returns the records of all services, by name.
func (s Store) All() ([]Record, error) {
	files, err := os.ReadDir(filepath.Join(s.Root, recordDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the records of installations: %w", err)
	}
	var all []Record
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok || strings.HasPrefix(name, ".") {
			continue
		}
		r, _, err := s.Load(name)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// others returns the records of all services except one.
func (s Store) others(name string) ([]Record, error) {
	all, err := s.All()
	return slices.DeleteFunc(all, func(r Record) bool { return r.Service == name }), err
}

func (s Store) save(r Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the record of the installation: %w", err)
	}
	return atomicfile.Write(s.path(r.Service), append(data, '\n'), 0o600)
}

func (s Store) forget(name string) error {
	if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the record of the installation: %w", err)
	}
	return nil
}

// has reports whether the record lists a path.
func (r Record) has(path string) bool {
	return slices.ContainsFunc(r.Files, func(f File) bool { return f.Path == path }) ||
		slices.ContainsFunc(r.Links, func(l Link) bool { return l.Path == path })
}

// lists reports whether one of the records lists a path.
func lists(records []Record, path string) bool {
	return slices.ContainsFunc(records, func(r Record) bool { return r.has(path) })
}

// ByData returns the record of the installation with a data directory.
func (s Store) ByData(dir string) (r Record, ok bool, err error) {
	all, err := s.All()
	for _, r := range all {
		if r.Dirs.Data == dir {
			return r, true, err
		}
	}
	return Record{}, false, err
}

// Variables returns the environment variables of an installed service.
func (in *Installer) Variables(r Record) ([]string, error) {
	file := in.at(EnvironmentFile(r.Service))
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the service's variables: %w", err)
	}
	variables, err := initsystem.ReadEnvironment(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return variables, nil
}
