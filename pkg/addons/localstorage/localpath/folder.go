package localpath

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"
)

// Names are the values that a pathPattern can use, under the names that it uses.
type Names struct {
	PVName string
	PVC    Claim
}

// Claim is the PersistentVolumeClaim of a volume.
type Claim struct {
	Name, Namespace, UID string
	Labels, Annotations  map[string]string
}

// longest is the maximum length of a file name, in bytes.
const longest = 255

// deleted is the prefix of the names of directories that are being removed.
const deleted = ".deleted-"

// Folder returns the path of a volume below the node's configured directory. An empty pattern stands for
// PVNAME_NAMESPACE_CLAIM. Any other pattern is a template over Names, and must give NAMESPACE/CLAIM or a path below it, so
// that names cannot be chosen to get the directory of another claim; unsafe allows any path below the configured directory.
func Folder(pattern string, names Names, unsafe bool) (string, error) {
	if pattern == "" {
		return defaultFolder(names), nil
	}
	t, err := template.New("pathPattern").Option("missingkey=error").Parse(pattern)
	if err != nil {
		return "", fmt.Errorf("reading pathPattern %q: %w", pattern, err)
	}
	var text strings.Builder
	if err := t.Execute(&text, names); err != nil {
		return "", fmt.Errorf("filling in pathPattern %q: %w", pattern, err)
	}
	folder := filepath.Clean(text.String())
	if err := checkFolder(folder); err != nil {
		return "", fmt.Errorf("pathPattern %q gives %q: %w", pattern, text.String(), err)
	}
	own := names.PVC.Namespace + "/" + names.PVC.Name
	if !unsafe && folder != own && !strings.HasPrefix(folder, own+"/") {
		return "", fmt.Errorf("pathPattern %q gives %q, which does not begin with %s/: let the pattern begin with "+
			"{{ .PVC.Namespace }}/{{ .PVC.Name }}, or set parameter allowUnsafePathPattern of the StorageClass to \"true\"", pattern, folder, own)
	}
	return folder, nil
}

// defaultFolder begins with the name of the PersistentVolume, which is unique, so it can be truncated.
func defaultFolder(names Names) string {
	name := strings.Join([]string{names.PVName, names.PVC.Namespace, names.PVC.Name}, "_")
	return name[:min(len(name), longest)]
}

func checkFolder(folder string) error {
	if !filepath.IsLocal(folder) || folder == "." {
		return errors.New("it must be a path below the node's directory")
	}
	for part := range strings.SplitSeq(folder, "/") {
		switch {
		case len(part) > longest:
			return fmt.Errorf("a file's name can have %d bytes", longest)
		case strings.HasPrefix(part, deleted):
			return fmt.Errorf("names beginning with %s are taken", deleted)
		case strings.ContainsRune(part, 0):
			return errors.New("it has a null byte")
		}
	}
	return nil
}
