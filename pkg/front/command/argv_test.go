package command

import (
	"strings"
	"testing"
)

func TestHideTokens(t *testing.T) {
	writable := func(texts ...string) (out []string) {
		for _, s := range texts {
			out = append(out, strings.Clone(s))
		}
		return out
	}
	for _, args := range [][]string{
		{"coracle", "agent", "--token", "secret-word", "--server=a"}, {"coracle", "server", "--token=secret-word"},
		{"coracle", "agent", "-t", "secret-word"}, {"coracle", "agent", "-tsecret-word"}, {"coracle", "server", "--agent-token=secret-word"},
		{"coracle", "install", "--", "server", "--token", "secret-word"},
	} {
		visible := writable(args...)
		got := hideTokens(visible)
		if strings.Join(got, " ") != strings.Join(args, " ") {
			t.Errorf("%q became %q", args, got)
		}
		if text := strings.Join(visible, " "); strings.Contains(text, "secret") || !strings.Contains(text, "***********") {
			t.Errorf("%q is shown", text)
		}
	}
}
