package command

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// tokenFlags are flags whose values are secret.
var tokenFlags = []string{"--token", "-t", "--agent-token"}

// hideTokens returns a copy of the arguments, and overwrites tokens in the original, which is the memory that every user of the
// machine can read in /proc/PID/cmdline.
func hideTokens(args []string) []string {
	if len(args) < 2 || !slices.Contains([]string{string(config.Server), string(config.Agent), "install", "check"}, args[1]) {
		return args
	}
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = strings.Clone(arg)
		name, value, given := strings.Cut(arg, "=")
		switch {
		case i > 0 && slices.Contains(tokenFlags, args[i-1]):
			overwrite(arg)
		case given && slices.Contains(tokenFlags, name):
			overwrite(value)
		case strings.HasPrefix(arg, "-t") && len(arg) > 2:
			overwrite(arg[2:])
		}
	}
	return out
}

func overwrite(s string) {
	for i := range unsafe.Slice(unsafe.StringData(s), len(s)) {
		unsafe.Slice(unsafe.StringData(s), len(s))[i] = '*'
	}
}
