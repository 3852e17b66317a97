package reset

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// TestDaemons: what the kubelet and containerd have told logind and AppArmor is taken back, if the ledger has it.
func TestDaemons(t *testing.T) {
	for _, noted := range []bool{true, false} {
		m, root := host(t)
		apparmor, logind := filepath.Join(root, ledger.AppArmorDir), filepath.Join(root, footprint.LogindConfig)
		for file, text := range map[string]string{
			filepath.Join(apparmor, "profiles"): "docker-default (enforce)\n" + footprint.AppArmorProfile + " (enforce)\n",
			filepath.Join(apparmor, ".remove"):  "",
			logind:                              "[Login]\nInhibitDelayMaxSec=30\n",
		} {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		removed := ""
		if noted {
			m.noted = slices.Concat(m.noted, []ledger.Entry{{Kind: ledger.AppArmor, Name: footprint.AppArmorProfile},
				{Kind: ledger.File, Name: footprint.LogindConfig}, {Kind: ledger.Dir, Name: filepath.Dir(footprint.LogindConfig)}})
			removed = footprint.AppArmorProfile
		}
		apply(t, m, findSettings)
		apply(t, m, findFiles)
		apply(t, m, findDirs)
		if got, _ := os.ReadFile(filepath.Join(apparmor, ".remove")); string(got) != removed {
			t.Errorf("noted %t: profile %q is removed", noted, got)
		}
		if _, err := os.Stat(filepath.Dir(logind)); os.IsNotExist(err) != noted {
			t.Errorf("noted %t: %v", noted, err)
		}
	}
}
