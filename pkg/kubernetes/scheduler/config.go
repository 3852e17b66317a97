package scheduler

import (
	"encoding/json"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// mergeConfig writes the user's configuration with the settings that kube-scheduler ignores as flags if it has a file: the connection to the
// API server, and no profiles. The user's values are kept.
func (s Scheduler) mergeConfig() error {
	data, err := os.ReadFile(s.Config)
	if err != nil {
		return fmt.Errorf("reading the scheduler configuration: %w", err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("reading the scheduler configuration %s: %w", s.Config, err)
	}
	if doc == nil {
		return fmt.Errorf("the scheduler configuration %s is empty", s.Config)
	}
	connection, _ := doc["clientConnection"].(map[string]any)
	if connection == nil {
		connection = map[string]any{}
	}
	if name, _ := connection["kubeconfig"].(string); name == "" {
		connection["kubeconfig"] = s.Kubeconfig
	}
	for _, limit := range []string{"qps", "burst"} {
		if _, given := connection[limit]; !given {
			connection[limit] = json.Number(requestRate)
		}
	}
	doc["clientConnection"] = connection
	if _, given := doc["enableProfiling"]; !given {
		doc["enableProfiling"] = false
	}
	if data, err = yaml.Marshal(doc); err != nil {
		return fmt.Errorf("encoding the scheduler configuration: %w", err)
	}
	return atomicfile.Write(s.Effective, data, 0o600)
}
