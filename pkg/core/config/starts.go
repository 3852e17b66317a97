package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Load reads what was resolved for an earlier start, as the front writes it for the halves.
func Load(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading the resolved configuration: %w", err)
	}
	var cfg Config
	if err := json.Unmarshal(data, &cfg); err != nil {
		return Config{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return cfg, nil
}

// Next is what a start without flags would be given now. Where that has mistakes, which a start would name, only the
// directories are told, as the environment and defaults have them.
func Next(environ []string) Config {
	for _, role := range []Role{Server, Agent} {
		if cfg, err := Resolve(role, nil, environ); err == nil {
			return cfg
		}
	}
	dirs := paths.Default()
	dirs.Data = cmp.Or(variable(environ, "CORACLE_DATA_DIR"), dirs.Data)
	dirs.Run = cmp.Or(variable(environ, "CORACLE_RUN_DIR"), dirs.Run)
	return Config{Dirs: dirs}
}

// IsVariable reports whether an environment variable is for a setting, by its name; whether there is such a setting is
// another question.
func IsVariable(name string) bool {
	return strings.HasPrefix(name, envPrefix) && !foreignEnv.MatchString(name)
}

// variable is the value of an environment variable, "" if it is not set.
func variable(environ []string, name string) string {
	i := slices.IndexFunc(environ, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
	if i < 0 {
		return ""
	}
	return environ[i][len(name)+1:]
}
