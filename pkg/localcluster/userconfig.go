package localcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/kubeconfig"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// UserConfig describes the changes to the user's kubeconfig.
type UserConfig struct {
	// Path is the file; "" if none is changed.
	Path string `json:"path,omitempty"`
	// Previous is the former current context.
	Previous string `json:"previous,omitempty"`
	// Made lists the file and its directories that did not exist before, the deepest first.
	Made []string `json:"made,omitempty"`
}

// planUserConfig determines what adding a context to the user's kubeconfig will change.
func planUserConfig(path string) (UserConfig, error) {
	u := UserConfig{Path: path}
	if path == "" {
		return u, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		for p := path; !paths.Exists(p); p = filepath.Dir(p) {
			u.Made = append(u.Made, p)
		}
		return u, nil
	}
	if err != nil {
		return u, err
	}
	f, err := kubeconfig.Parse(data)
	if err != nil {
		return u, errors.Join(errors.New("your kubeconfig "+path+" cannot be read; repair it, or set KUBECONFIG to another file"), err)
	}
	u.Previous = f.CurrentContext()
	return u, nil
}

// mergeUserConfig makes the cluster's context the current one of the user's kubeconfig.
func (s Store) mergeUserConfig(r Record) error {
	if r.UserConfig.Path == "" {
		return nil
	}
	data, err := os.ReadFile(s.Kubeconfig(r.Name))
	if err != nil {
		return err
	}
	from, err := kubeconfig.Parse(data)
	if err != nil {
		return err
	}
	return updateUserConfig(r.UserConfig.Path, func(f *kubeconfig.File) { f.Merge(from, true) })
}

// updateUserConfig changes the user's kubeconfig. It repeats that while another program has the file locked.
func updateUserConfig(path string, change func(*kubeconfig.File)) error {
	return nshost.Retry(func() error {
		return kubeconfig.Update(path, func(f *kubeconfig.File) error {
			change(f)
			return nil
		})
	})
}

// restoreUserConfig removes the cluster's context from the user's kubeconfig and restores the former current context, unless the user has
// chosen another one since. A file that was made for the context is removed if nothing else is in it.
func (s Store) restoreUserConfig(r Record) error {
	path := r.UserConfig.Path
	if path == "" || !paths.Exists(path) {
		return nil
	}
	empty := false
	err := updateUserConfig(path, func(f *kubeconfig.File) {
		f.Remove(r.Context(), r.UserConfig.Previous)
		empty = f.Empty()
	})
	if err != nil || !empty {
		return err
	}
	for _, made := range r.UserConfig.Made {
		if err := os.Remove(made); err != nil {
			break // not empty
		}
	}
	return nil
}

// writePrivate writes a file that holds keys.
func writePrivate(path string, data []byte) error { return atomicfile.Write(path, data, 0o600) }

// writeKubeconfig writes the administrator's kubeconfig for clients on this machine.
func (h *holder) writeKubeconfig() error {
	first := h.member(h.record.Nodes[0].Name).host
	data, err := os.ReadFile(first.Path(filepath.Join(paths.Default().Config, "kubeconfig.yaml")))
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of %s: %w", first.Name, err)
	}
	f, err := kubeconfig.Parse(data)
	if err != nil {
		return err
	}
	if err := f.Rename(h.record.Context()); err != nil {
		return fmt.Errorf("reading the kubeconfig of %s: %w", first.Name, err)
	}
	f.SetServer("https://" + h.record.API().String())
	if data, err = f.Encode(); err != nil {
		return err
	}
	return writePrivate(h.store.Kubeconfig(h.record.Name), data)
}
