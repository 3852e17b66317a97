// Package devices is the example of docs/extending/devices.md: a device plug-in, and a driver of dynamic resource allocation.
package devices

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// cdiDir is where containerd looks for devices.
const cdiDir = "/var/run/cdi"

// describe writes what containers get with some devices of a kind: a node in /dev, here one of /dev/null, and a variable. CDI is the format.
func describe(kind, variable string, devices ...string) error {
	var all []any
	for _, name := range devices {
		all = append(all, map[string]any{"name": name, "containerEdits": map[string]any{
			"env":         []string{variable + "=" + name},
			"deviceNodes": []any{map[string]any{"path": "/dev/" + variable + "-" + name, "hostPath": "/dev/null"}},
		}})
	}
	data, err := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": kind, "devices": all})
	if err != nil {
		return err
	}
	file := filepath.Join(cdiDir, strings.ReplaceAll(kind, "/", "-")+"-"+devices[0]+".json")
	if err := os.WriteFile(file+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
