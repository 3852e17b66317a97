package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/diagnose/redact"
)

// unpack returns what is in an archive, by name.
func unpack(t *testing.T, data []byte) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || h.Mode != 0o600 {
			t.Fatalf("%s: mode %o, %v", h.Name, h.Mode, err)
		}
		out[strings.TrimPrefix(h.Name, "x/")] = string(text)
	}
}

func says(name, text string) Collector {
	return Collector{Name: name, About: "what " + name + " says", Collect: func(_ context.Context, to *Files) error {
		to.Add("", []byte(text))
		return nil
	}}
}

// TestWrite: whatever one collector does, the others' files are there.
func TestWrite(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	b := Bundle{
		Name: "x", Title: "A bundle.", Made: time.Date(2026, 11, 21, 10, 44, 0, 0, time.UTC), Redactor: redact.New("correct horse"),
		Timeout: 2 * time.Second, AtOnce: 2, MaxFile: 1000, Max: 2500, Notes: []string{"from the start"},
	}
	var out bytes.Buffer
	outcomes, err := b.Write(t.Context(), &out, []Collector{
		says("good.txt", "all is well"),
		says("secret.txt", "the correct horse"),
		{Name: "hangs", Collect: func(_ context.Context, to *Files) error {
			to.Add("before", []byte("half of it"))
			<-release // deaf
			to.Add("late", nil)
			return nil
		}},
		{Name: "breaks", Collect: func(context.Context, *Files) error { panic("boom") }},
		{Name: "fails", Collect: func(_ context.Context, to *Files) error {
			to.Add("part", []byte("one"))
			to.Note("the second one is missing: Bearer 0123456789abcdef")
			return errors.New("no more of the correct horse")
		}},
		says("large.txt", strings.Repeat("a", 900)+strings.Repeat("b", 900)),
		says("more.txt", strings.Repeat("c", 900)),
		says("too-much.txt", strings.Repeat("d", 900)),
		says("binary", "a\xffb"),
	})
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, out.Bytes())
	for name, want := range map[string]string{
		"good.txt": "all is well", "secret.txt": "the (removed)", "hangs/before": "half of it", "fails/part": "one", "binary": "a?b",
		"large.txt": strings.Repeat("a", 100) + strings.Repeat("b", 900),
	} {
		if files[name] != want {
			t.Errorf("%s: %q, want %q", name, files[name], want)
		}
	}
	if _, ok := files["too-much.txt"]; ok && files["more.txt"] != "" {
		t.Error("it is too large")
	}
	for _, want := range []string{
		"A bundle.", "what good.txt says", "- from the start", "- hangs: it took longer than 2s and was abandoned", "- breaks: it panicked: boom",
		"- fails: the second one is missing: Bearer (removed)", "- fails: no more of the (removed)", "only the last 1000 of 1800 bytes", "would be larger",
	} {
		if !strings.Contains(files["README.txt"], want) {
			t.Errorf("README.txt lacks %q:\n%s", want, files["README.txt"])
		}
	}
	if len(outcomes) != 9 || outcomes[4].Name != "fails" {
		t.Errorf("%+v", outcomes)
	}
}

func TestWriteTells(t *testing.T) {
	if _, err := (Bundle{}).Write(t.Context(), full{}, []Collector{says("a", "b")}); err == nil {
		t.Error("it wrote to a full disk")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestCommand(t *testing.T) {
	for _, c := range []struct {
		name  string
		argv  []string
		files string
		err   string
	}{
		{"good", []string{"sh", "-c", "echo yes"}, "yes\n", ""},
		{"code as an answer", []string{"sh", "-c", "echo no; exit 3"}, "no\n", ""},
		{"fails", []string{"sh", "-c", "echo half; echo why >&2; exit 1"}, "half\n", "why"},
		{"missing", []string{"no-such-program"}, "", "there is no program no-such-program"},
		{"hangs", []string{"sleep", "60"}, "", "sleep 60 did not answer in time"},
		{"leaves a child", []string{"sh", "-c", "sleep 60 & echo up"}, "up\n", ""},
		{"environment", []string{"sh", "-c", "echo $X"}, "y\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			patience := time.Minute
			if c.name == "hangs" {
				patience = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			f := &Files{name: "n", most: 1000}
			err := Command([]string{"X=y"}, c.argv...)(ctx, f)
			all, _ := f.close()
			var got string
			if len(all) > 0 {
				got = string(all[0].data)
			}
			if got != c.files || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q, %v; want %q, %s", got, err, c.files, c.err)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": "a", "b.yaml": "b", "server.key": "k", "coracle.env": "e"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "dir.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := &Files{name: "n", most: 1000}
	if err := Flat(isSecretFile, filepath.Join(dir, "*"), "/no/such/*")(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	all, notes := f.close()
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	if got := strings.Join(names, " "); got != "n/a.yaml n/b.yaml" || len(notes) > 0 {
		t.Errorf("%s, %v", got, notes)
	}
	f = &Files{name: "n", most: 1000}
	_ = One(filepath.Join(dir, "none"))(t.Context(), f)
	if _, notes := f.close(); len(notes) != 1 {
		t.Errorf("%v", notes)
	}
}

// TestHost: what is asked of the machine works on this one.
func TestHost(t *testing.T) {
	for _, c := range host(Sources{Self: "/no/such/file", Redactor: redact.New()}) {
		if strings.HasPrefix(c.Name, "host/firewall") || strings.HasPrefix(c.Name, "host/dmesg") {
			continue // they need root
		}
		f := &Files{name: c.Name, most: 1 << 20}
		err := c.Collect(t.Context(), f)
		if all, _ := f.close(); len(all) == 0 && (err == nil || !strings.Contains(err.Error(), "no program")) {
			t.Errorf("%s: nothing, %v", c.Name, err)
		}
	}
}
