package logs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

func entry(level logrus.Level, message string, fields logrus.Fields) *logrus.Entry {
	return &logrus.Entry{
		Logger: logrus.New(), Level: level, Message: message, Data: fields,
		Time: time.Date(2026, 11, 21, 10, 44, 0, 123e6, time.UTC),
	}
}

func TestTextAndBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		entry *logrus.Entry
		text  string
		line  Line
	}{
		{"plain", entry(logrus.InfoLevel, "ready", nil), "2026-11-21T10:44:00.123Z INFO  ready", Line{Message: "ready"}},
		{"component", entry(logrus.WarnLevel, "slow disk", logrus.Fields{"component": "etcd", "took": 3 * time.Second}),
			"2026-11-21T10:44:00.123Z WARN  etcd: slow disk took=3s", Line{Component: "etcd", Message: "slow disk took=3s"}},
		{"quoted", entry(logrus.ErrorLevel, "gone", logrus.Fields{"error": errors.New(`no "x"`), "a": ""}),
			`2026-11-21T10:44:00.123Z ERROR gone a="" error="no \"x\""`, Line{Message: `gone a="" error="no \"x\""`}},
		{"forged", entry(logrus.DebugLevel, "one\n2026-11-21T10:44:00.123Z ERROR two\n", nil),
			`2026-11-21T10:44:00.123Z DEBUG one\n2026-11-21T10:44:00.123Z ERROR two`, Line{Message: `one\n2026-11-21T10:44:00.123Z ERROR two`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, err := Text{}.Format(c.entry)
			if err != nil || string(text) != c.text+"\n" {
				t.Errorf("%q, want %q", text, c.text)
			}
			c.line.Time, c.line.Level = c.entry.Time, c.entry.Level
			if line, ok := Parse(c.text); !ok || line != c.line {
				t.Errorf("parsed %+v, want %+v", line, c.line)
			}
			coloured, _ := Text{Colour: true}.Format(c.entry)
			plain := strings.NewReplacer("\x1b[0m", "", "\x1b["+colourOf(c.entry.Level)+"m", "").Replace(string(coloured))
			if plain != string(text) {
				t.Errorf("coloured %q", coloured)
			}
			if !strings.Contains(Colour(c.text), "\x1b["+colourOf(c.entry.Level)+"m") {
				t.Errorf("Colour: %q", Colour(c.text))
			}
		})
	}
}

func TestParseOthers(t *testing.T) {
	for _, s := range []string{"", "panic: boom", "{", `{"level":"nonsense"}`, "2026-11-21T10:44:00.123Z", "2026-11-21T10:44:00.123Z NOISE x"} {
		if line, ok := Parse(s); ok {
			t.Errorf("%q: %+v", s, line)
		}
	}
	line, ok := Parse(`{"component":"etcd","error":"x y","level":"error","msg":"gone","time":"2026-11-21T10:44:00.123Z"}`)
	if want := `gone error="x y"`; !ok || line.Message != want || line.Component != "etcd" || line.Level != logrus.ErrorLevel {
		t.Errorf("%+v", line)
	}
}

func TestLevels(t *testing.T) {
	cfg := config.Log{Level: "warn", Format: "text", Levels: map[string]string{"kubelet": "debug", "etcd": "error"}}
	logger := logrus.New()
	var out bytes.Buffer
	logger.SetOutput(&out)
	Apply(logger, cfg, false)
	for _, component := range []string{"kubelet", "etcd", "other"} {
		log := logger.WithField(Component, component)
		log.Debug("debug")
		log.Warn("warn")
		log.Error("error")
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line)[2:], ""))
	}
	if want := "kubelet:debug kubelet:warn kubelet:error etcd:error other:warn other:error"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", got, want)
	}
	if Level(cfg, "kubelet") != logrus.DebugLevel || Level(cfg, "x") != logrus.WarnLevel {
		t.Error("Level")
	}
}

func TestLastError(t *testing.T) {
	const stamp = "2026-11-21T10:44:00.123Z "
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"nothing", nil, ""},
		{"last line", []string{"a", "b", ""}, "b"},
		{"error", []string{stamp + "ERROR etcd: broken", stamp + "INFO  bye"}, "etcd: broken"},
		{"last error", []string{stamp + "ERROR one", stamp + "ERROR two"}, "two"},
		{"panic", []string{stamp + "ERROR one", "panic: boom", "", "goroutine 1 [running]:", "main.main()"}, "panic: boom"},
		{"info", []string{stamp + "INFO  x: here"}, "here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l LastError
			for _, line := range c.lines {
				l.Line(line)
			}
			if got := slices.ContainsFunc(c.lines, Alarming); got != (strings.HasSuffix(c.name, "error") || c.name == "panic") {
				t.Errorf("alarming: %v", got)
			}
			if l.String() != c.want {
				t.Errorf("%q, want %q", l.String(), c.want)
			}
		})
	}
}

func TestFileRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "x.log")
	f := &File{Path: path, Max: 10, Keep: 2}
	for _, line := range []string{"1111\n", "2222\n", "3333\n", "4444\n", "5555\n", "6666\n", "7777\n", "too long for one file\n"} {
		if _, err := f.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again := &File{Path: path, Max: 1000}
	if _, err := again.Write([]byte("more\n")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		path: "too long for one file\nmore\n", path + ".1": "7777\n", path + ".2": "5555\n6666\n",
	} {
		if data, err := os.ReadFile(name); err != nil || string(data) != want {
			t.Errorf("%s: %q (%v), want %q", name, data, err, want)
		}
	}
	if _, err := os.Stat(path + ".3"); err == nil {
		t.Error("kept too many")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
}

// TestFileMendsItsEnd: a line without its end gets one, and counts for the size at which the file is rotated.
func TestFileMendsItsEnd(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "log"), Max: 9}
	if err := os.WriteFile(f.Path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"def\n", "g\n"} {
		if _, err := f.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	old, _ := os.ReadFile(f.Path + ".1")
	data, _ := os.ReadFile(f.Path)
	if string(old) != "abc\ndef\n" || string(data) != "g\n" {
		t.Errorf("the rotated file holds %q, the present one %q", old, data)
	}
}
