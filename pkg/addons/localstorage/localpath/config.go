// Package localpath creates, finds and removes the directories of local volumes. Their location is configured in the format
// of Rancher's local-path-provisioner. It never removes a directory that is not the volume's, and links no Kubernetes.
package localpath

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
)

// DefaultNode stands in a configuration for all nodes that it does not list.
const DefaultNode = "DEFAULT_PATH_FOR_NON_LISTED_NODES"

// Config says below which directories volumes are created.
type Config struct {
	all     places
	classes map[string]places
}

// places are directories by node.
type places struct {
	nodes  map[string][]string
	shared bool // all nodes share one directory instead
}

// ErrShared is the error for a class whose directory is the same on all nodes.
var ErrShared = errors.New("sharedFileSystemPath in the ConfigMap " + ConfigMap + " is not supported: use a CSI driver for shared file systems")

// file is the format.
type file struct {
	fileMap
	Classes map[string]fileMap `json:"storageClassConfigs"`

	// Programs that the original runs to create and remove a directory: accepted and ignored.
	Timeout         json.RawMessage `json:"cmdTimeoutSeconds"`
	SetupCommand    json.RawMessage `json:"setupCommand"`
	TeardownCommand json.RawMessage `json:"teardownCommand"`
}

type fileMap struct {
	Nodes []struct {
		Node  string     `json:"node"`
		Paths []filePath `json:"paths"`
	} `json:"nodePathMap"`
	Shared string `json:"sharedFileSystemPath"`
}

// filePath is a path, alone or in an object with what others limit it by.
type filePath string

func (p *filePath) UnmarshalJSON(data []byte) error {
	var object struct {
		Path string `json:"path"`
	}
	if len(data) > 0 && data[0] == '{' {
		err := json.Unmarshal(data, &object)
		*p = filePath(object.Path)
		return err
	}
	return json.Unmarshal(data, (*string)(p))
}

// Parse parses a configuration. Its error says what to correct.
func Parse(data []byte) (Config, error) {
	var f file
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Config{}, fmt.Errorf("reading the paths of local volumes: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Config{}, errors.New("reading the paths of local volumes: there is more behind the closing brace")
	}
	c := Config{classes: map[string]places{}}
	var err error
	if c.all, err = f.places(); err != nil {
		return Config{}, err
	}
	for _, class := range slices.Sorted(maps.Keys(f.Classes)) {
		p, err := f.Classes[class].places()
		if err != nil {
			return Config{}, fmt.Errorf("storageClassConfigs, class %s: %w", class, err)
		}
		c.classes[class] = p
	}
	return c, nil
}

func (f fileMap) places() (places, error) {
	p := places{nodes: map[string][]string{}}
	if f.Shared != "" {
		if len(f.Nodes) > 0 {
			return p, errors.New("nodePathMap and sharedFileSystemPath exclude each other: remove one")
		}
		p.shared = true
		_, err := checkPath(f.Shared)
		return p, err
	}
	for _, n := range f.Nodes {
		if n.Node == "" {
			return p, errors.New("an entry of nodePathMap names no node")
		}
		if _, twice := p.nodes[n.Node]; twice {
			return p, fmt.Errorf("nodePathMap has node %s twice", n.Node)
		}
		paths := []string{}
		for _, text := range n.Paths {
			path, err := checkPath(string(text))
			if err != nil {
				return p, fmt.Errorf("node %s: %w", n.Node, err)
			}
			if slices.Contains(paths, path) {
				return p, fmt.Errorf("node %s has path %s twice", n.Node, path)
			}
			paths = append(paths, path)
		}
		p.nodes[n.Node] = paths
	}
	return p, nil
}

func checkPath(text string) (string, error) {
	path := filepath.Clean(text)
	if !filepath.IsAbs(path) || path == "/" {
		return "", fmt.Errorf("path %q is not an absolute path below /", text)
	}
	return path, nil
}

// Places returns where volumes of a class are created on a node. It returns an error if the configuration allows none.
func (c Config) Places(node, class string) ([]string, error) {
	p, ok := c.classes[class]
	if !ok {
		p = c.all
	}
	if p.shared {
		return nil, ErrShared
	}
	paths, listed := p.nodes[node]
	if !listed {
		if paths, listed = p.nodes[DefaultNode]; !listed {
			return nil, fmt.Errorf("node %s is not in nodePathMap, and there is no %s", node, DefaultNode)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("node %s has no path for local volumes in nodePathMap", node)
	}
	return paths, nil
}

// Bases returns all directories in which a node's volumes may be, of any class, sorted.
func (c Config) Bases(node string) []string {
	var all []string
	for _, class := range append(slices.Collect(maps.Keys(c.classes)), "") {
		paths, _ := c.Places(node, class)
		all = append(all, paths...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
