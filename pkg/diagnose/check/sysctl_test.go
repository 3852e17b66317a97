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
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fine(t, kernelDefaults(t.Context(), m))
	m.Config.Security.Profile = config.ProfileCIS
	for _, s := range config.KernelSettings() {
		set(s.Name, s.Value)
	}
	fine(t, kernelDefaults(t.Context(), m))
	set("kernel.panic", "0")
	got := kernelDefaults(t.Context(), m)
	if len(got) != 1 || got[0].Result != Fail || !strings.Contains(got[0].Finding, "kernel.panic is 0, not 10") || !strings.Contains(got[0].Fix, "'kernel.panic=10\\n'") {
		t.Errorf("%+v", got)
	}
}
