package command

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// tokenFlags are flags whose values nobody else shall see.
var tokenFlags = []string{"--token", "-t", "--agent-token"}

// hideTokens returns the arguments, and makes those that are tokens unreadable where the kernel shows them to every user
// of the machine, in /proc/PID/cmdline: the strings of os.Args are that memory.
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
