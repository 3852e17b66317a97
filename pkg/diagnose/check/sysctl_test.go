package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// TestKernelDefaults: with the CIS profile, a setting that the kubelet would refuse fails, and the fix sets it.
func TestKernelDefaults(t *testing.T) {
	m := &Machine{Root: t.TempDir()}
	set := func(name, value string) {
		t.Helper()
		file := m.path("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		if strings.HasSuffix(name, ".conf") {
			file = m.path(name)
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fine(t, kernelDefaults(t.Context(), m))
	m.Config.Security.Profile = config.ProfileCIS
	var lines []string
	for _, s := range config.KernelSettings() {
		set(s.Name, s.Value)
		lines = append(lines, s.Name+"="+s.Value)
	}
	// A kubelet without the profile has set them, and nothing will after a reboot.
	expect(t, kernelDefaults(t.Context(), m), Warn, "reboot", "vm.overcommit_memory, vm.panic_on_oom, kernel.panic,", strings.Join(lines, `\n`))
	set("/etc/sysctl.d/1.conf", "# a comment\n"+strings.Join(lines[1:], "\n"))
	expect(t, kernelDefaults(t.Context(), m), Warn, "sets vm.overcommit_memory;", strings.Join(lines, `\n`))
	set("/usr/lib/sysctl.d/50-vm.conf", "-vm/overcommit_memory = 1")
	fine(t, kernelDefaults(t.Context(), m))
	set("kernel.panic", "0")
	expect(t, kernelDefaults(t.Context(), m), Fail, "these: kernel.panic is 0, not 10;", strings.Join(lines, `\n`)) // the fix replaces the whole file
}
