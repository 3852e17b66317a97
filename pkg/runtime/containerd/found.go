package containerd

import (
	"fmt"
	"path/filepath"

	srvconfig "github.com/containerd/containerd/v2/cmd/containerd/server/config"

	"github.com/coracle-dev/coracle/pkg/runtime/handlers"
)

// addFound adds the runtimes that the machine has to a configuration. What a drop-in says of a handler of the same name stays as it is.
func (c Containerd) addFound(config *srvconfig.Config, found []handlers.Handler) error {
	at := any(config.Plugins)
	for _, key := range []string{"io.containerd.cri.v1.runtime", "containerd", "runtimes"} {
		table, ok := at.(map[string]any)
		if !ok {
			return fmt.Errorf("containerd's configuration has no table above %s: correct the drop-in in %s that replaces it", key, c.DropIns)
		}
		at = table[key]
	}
	runtimes, ok := at.(map[string]any)
	if !ok {
		return fmt.Errorf("containerd's configuration has no table of runtimes: correct the drop-in in %s that replaces it", c.DropIns)
	}
	for _, h := range found {
		if _, own := runtimes[h.Name]; !own {
			runtimes[h.Name] = c.runtime(h)
		}
	}
	return nil
}

// runtime returns containerd's settings of a runtime. One of runc's kind has no runtime_path, so containerd looks for its shim in PATH and does not let its pods share one.
func (c Containerd) runtime(h handlers.Handler) map[string]any {
	if h.Type != handlers.Runc {
		return map[string]any{"runtime_type": h.Type, "runtime_path": h.Program}
	}
	options := map[string]any{"BinaryName": h.Program, "Root": filepath.Join(c.RuncState, h.Name), "SystemdCgroup": c.SystemdCgroup}
	if c.NoKeyrings {
		options["NoNewKeyring"] = true
	}
	return map[string]any{"runtime_type": h.Type, "options": options}
}
