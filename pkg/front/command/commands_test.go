package command

import (
	"os"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/test/golden"
)

// printed is what f writes to standard output.
func printed(t *testing.T, f func() error) (string, error) {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "stdout")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stdout := os.Stdout
	os.Stdout = out
	defer func() { os.Stdout = stdout }()
	failed := f()
	data, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(data), failed
}

func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{
		"help": {"help"}, "help-wait": {"wait", "-h"}, "help-version": {"help", "version"},
		"help-run": {"help", "run"}, "help-exit-codes": {"help", "exit-codes"}, "help-up": {"help", "up"}, "help-down": {"down", "--help"},
		"help-check": {"check", "agent", "--help"}, "help-install": {"install", "-h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CORACLE_DATA_DIR", "")
			t.Setenv("CORACLE_RUN_DIR", "")
			var code int
			text, _ := printed(t, func() error { code = Main(append([]string{"coracle"}, args...)); return nil })
			if code != 0 {
				t.Fatalf("exit code %d", code)
			}
			golden.Check(t, "testdata/"+name+".golden", text)
		})
	}
}

func TestExitCodes(t *testing.T) {
	stderr := os.Stderr
	os.Stderr, _ = os.Open(os.DevNull)
	defer func() { os.Stderr = stderr }()
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"help"}, 0},
		{[]string{"wait", "--help"}, 0},
		{[]string{"nonsense"}, 2},
		{[]string{"--help"}, 0},
		{[]string{"--token", "secret", "server", "--help"}, 2}, // secrets there would not be hidden
		{[]string{"--token=secret", "server", "--help"}, 2},
		{[]string{"wait", "--nonsense"}, 2},
		{[]string{"wait", "--for=nonsense"}, 2},
		{[]string{"wait", "argument"}, 2},
		{[]string{"version", "-o", "xml"}, 2},
		{[]string{"server", "--https-listen-port=x"}, 2},
		{[]string{"agent", "--server=https://192.0.2.1:6443", "--data-dir=/proc/none"}, 3},
		{[]string{"server", "--help"}, 0},
		{[]string{"up", "--nodes", "0"}, 2},
		{[]string{"up", "one", "two"}, 2},
		{[]string{"run", "--nodes", "0", "true"}, 125},
		{[]string{"run", "--nonsense"}, 125},
		{[]string{"check", "--nonsense"}, 2},
	} {
		var code int
		_, _ = printed(t, func() error { code = Main(append([]string{"coracle"}, c.args...)); return nil })
		if code != c.want {
			t.Errorf("%q: exit code %d, want %d", c.args, code, c.want)
		}
	}
}

// TestUnknownCommand: a mistyped command is answered in one line, which names the program once.
func TestUnknownCommand(t *testing.T) {
	for args, want := range map[string]string{
		"srver":         `unknown command "srver" for "coracle"; did you mean server?`,
		"st --all":      `unknown command "st" for "coracle"; did you mean up, ctr, status?`,
		"zzzzzzz":       `unknown command "zzzzzzz" for "coracle"; see 'coracle --help' for all commands`,
		"help srver":    `unknown command "srver" for "coracle"; did you mean server?`,
		"help wait for": `unknown command "for" for "coracle wait"; see 'coracle wait --help' for all commands`,
	} {
		err := Execute(Tree(nil), strings.Fields(args))
		if err == nil || err.Error() != want || exitcode.Code(err) != int(exitcode.Misuse) {
			t.Errorf("%s: %q, want %q", args, err, want)
		}
	}
}

func TestVersionFormats(t *testing.T) {
	v := versions{Version: "v1", Commit: "0123456789abcdef", Go: "go1", Platform: "linux/amd64"}
	for format, want := range map[string]string{
		"":     "coracle v1 (0123456789ab, go1, linux/amd64)\n",
		"json": "{\n  \"version\": \"v1\",\n  \"commit\": \"0123456789abcdef\",\n  \"go\": \"go1\",\n  \"platform\": \"linux/amd64\"\n}\n",
		"yaml": "version: v1\ncommit: 0123456789abcdef\ngo: go1\nplatform: linux/amd64\n",
	} {
		if got, err := printed(t, func() error { return v.print(format) }); err != nil || got != want {
			t.Errorf("%s: %q (%v)", format, got, err)
		}
	}
}

func TestConfirm(t *testing.T) {
	var out strings.Builder
	if err := Confirm(strings.NewReader("yes\n"), &out, "All is lost. "); exitcode.Code(err) != 2 || out.Len() > 0 {
		t.Errorf("without a terminal: %v, %q", err, out.String())
	}
}
