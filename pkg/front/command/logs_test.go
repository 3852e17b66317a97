package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

func TestPrintLogs(t *testing.T) {
	t.Setenv("CORACLE_DATA_DIR", "")
	t.Setenv("CORACLE_RUN_DIR", t.TempDir())
	dir := t.TempDir()
	file := filepath.Join(dir, "log", "coracle.log")
	for name, text := range map[string]string{
		file + ".1": "2026-11-21T10:00:00.000Z INFO  etcd: one\n2026-11-21T10:00:01.000Z WARN  kubelet: two\n",
		file:        "2026-11-21T10:00:02.000Z ERROR etcd: three\n2026-11-21T10:00:03.000Z INFO  x: torn",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args, want string
	}{
		{"", "one two three torn"},
		{"-n 2", "three torn"},
		{"-n 0", ""},
		{"--level warn", "two three"},
		{"--component etcd", "one three"},
		{"--since 2026-11-21T10:00:01Z", "two three torn"},
		{"--since 2026-11-21T10:00:01Z --component etcd -n 5", "three"},
	} {
		out, err := printed(t, func() error {
			return Execute(Tree(nil), append([]string{"logs", "-d", dir}, strings.Fields(c.args)...))
		})
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
		}
		var got []string
		for line := range strings.Lines(out) {
			words := strings.Fields(line)
			got = append(got, words[len(words)-1])
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
	if _, err := printed(t, func() error { return Execute(Tree(nil), []string{"logs", "-d", t.TempDir()}) }); err == nil || !strings.Contains(err.Error(), "there is no log in") {
		t.Errorf("%v", err)
	}
}

func TestLogFilter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f, err := logFilter("90m", "etcd", "warn", now)
	if err != nil || !f.Since.Equal(now.Add(-90*time.Minute)) || f.Component != "etcd" || f.Level != logrus.WarnLevel {
		t.Errorf("%+v, %v", f, err)
	}
	for _, bad := range [][2]string{{"yesterday", ""}, {"", "loud"}} {
		if _, err := logFilter(bad[0], "", bad[1], now); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}
