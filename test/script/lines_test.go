package script

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLines types the lines of the documentation that pipe install.sh into a shell. In place of GitHub, which is not reached, curl has the script at the
// address of the latest release, whose files scripts/release puts together.
func TestLines(t *testing.T) {
	m := newMirror(t)
	for page, want := range map[string][]string{
		"README.md":       nil,
		"docs/install.md": nil,
		"docs/gateway.md": {"--", "server", "--acme-email=ops@example.com"},
		"docs/backup.md":  {"--skip-start"},
	} {
		text := read(t, filepath.Join("../..", page))
		line := regexp.MustCompile(`(?m)^ *(curl .*/install\.sh \|.*)$`).FindStringSubmatch(text)
		if line == nil {
			t.Errorf("%s has no line that installs coracle", page)
			continue
		}
		t.Run(page, func(t *testing.T) {
			in(t, shells, func(t *testing.T, shell []string) {
				s := newSandbox(t, m, shell)
				s.link("sh", shell...)
				releases := regexp.MustCompile(`INSTALL_CORACLE_MIRROR:-(.*/releases)/download}`).FindStringSubmatch(s.script)[1]
				write(t, s.dir, "install.sh", s.script)
				write(t, s.path, "curl", "#!/bin/sh\n[ \"$*\" = '-sfL "+releases+"/latest/download/install.sh' ] && exec /bin/cat "+filepath.Join(s.dir, "install.sh")+"\n")
				s.script = line[1] + "\n"
				before := s.tree()
				s.installed(s.run(), before, append([]string{"install", "--bin-dir", s.bin}, want...)...)
			})
		})
	}
	if !strings.Contains(read(t, "../../scripts/release"), `cp install.sh "$out/install.sh"`) {
		t.Error("scripts/release puts no install.sh into a release")
	}
}
