package logs

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// TestBounded: the log of a service that runs for years has two files of limited size, with the last lines.
func TestBounded(t *testing.T) {
	path := t.TempDir() + "/boat.log"
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := Bounded(f, "boat")
	const lines = 40_000
	for i := range lines {
		if _, err := fmt.Fprintf(w, "line %d %s\n", i, strings.Repeat("x", 90)); err != nil {
			t.Fatal(err)
		}
	}
	var all string
	for _, name := range []string{path + ".1", path} {
		data, err := os.ReadFile(name)
		if err != nil || len(data) > appendMax || strings.ContainsRune(string(data), 0) {
			t.Fatalf("%s has %d bytes, %v", name, len(data), err)
		}
		all += string(data)
	}
	first := lines - strings.Count(all, "\n")
	for i, line := range strings.Split(strings.TrimSpace(all), "\n") {
		if !strings.HasPrefix(line, fmt.Sprintf("line %d ", first+i)) {
			t.Fatalf("line %d is %.20s", first+i, line)
		}
	}
	if len(all) < appendMax {
		t.Errorf("only %d bytes are kept", len(all))
	}
}

// TestNotBounded: files of others, files that are not appended to, pipes and terminals are left alone.
func TestNotBounded(t *testing.T) {
	dir := t.TempDir()
	open := func(name string, flag int) *os.File {
		f, err := os.OpenFile(dir+name, os.O_WRONLY|os.O_CREATE|flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer pipe.Close()
	for _, test := range []struct {
		f       *os.File
		service string
	}{
		{open("/boat.log", os.O_APPEND), ""}, {open("/boat.log", 0), "boat"}, {open("/mine.txt", os.O_APPEND), "boat"}, {open("/other.log", os.O_APPEND), "boat"}, {pipe, "boat"},
	} {
		if w := Bounded(test.f, test.service); w != io.Writer(test.f) {
			t.Errorf("%s of service %q is bounded", test.f.Name(), test.service)
		}
	}
}
