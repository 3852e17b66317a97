package front

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/progress"
)

// TestNobodyReads: while nobody reads stderr, as when journald hangs, the lines of the child processes are taken. The log files have all of them, and
// stderr says how many it lacks.
func TestNobodyReads(t *testing.T) {
	formatter := logrus.StandardLogger().Formatter
	t.Cleanup(func() {
		logrus.SetOutput(os.Stderr)
		logrus.SetFormatter(formatter)
	})
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cfg := config.Config{Dirs: paths.Dirs{Data: t.TempDir()}, Log: config.Log{Level: "info", Format: format}}
			o := newOutput(cfg, w, func() progress.View { return progress.View{} })
			const lines = 30_000
			for i := range lines {
				o.program("node", fmt.Sprintf(`{"line": "%d", "x": "%s"}`, i, strings.Repeat("x", 90)))
			}
			read := make(chan []byte)
			go func() {
				data, _ := io.ReadAll(r)
				read <- data
			}()
			o.close(nil)
			w.Close()
			o.stderr.To.(io.Closer).Close()
			all, missing := <-read, 0
			for _, line := range bytes.Split(all, []byte("\n")) {
				if before, _, found := bytes.Cut(line, []byte(" lines are missing here, because nobody read them")); found {
					n := 0
					fmt.Sscan(string(before[bytes.LastIndexAny(before, ` "`)+1:]), &n)
					missing += n
				}
			}
			if got := bytes.Count(all, []byte(`"line"`)); missing == 0 || got+missing != lines {
				t.Errorf("%d lines are read, and %d are said to be missing, of %d", got, missing, lines)
			}
			files, _ := filepath.Glob(cfg.Dirs.LogFile() + "*")
			kept := 0
			for _, file := range files {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				kept += bytes.Count(data, []byte(`"line"`))
			}
			if kept != lines {
				t.Errorf("the log files have %d lines of %d", kept, lines)
			}
		})
	}
}
