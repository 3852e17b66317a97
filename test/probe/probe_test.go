package main

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	for line, want := range map[string]string{
		"-v -t -w 2 web 80":                       "[-t -v] 2 [web 80]",
		"-vt -w 2 web 80":                         "[-t -v] 2 [web 80]",
		"-q -s --connect-timeout 5 -w %{x} web/a": "[-q -s] %{x} [web/a]",
		"--silent 127.0.0.1:1/a":                  "[--silent]  [127.0.0.1:1/a]",
	} {
		p := options(strings.Fields(line), map[string]string{"-w": "", "--connect-timeout": ""})
		got := "[" + strings.Join(slices.Sorted(maps.Keys(p.set)), " ") + "] " + p.value["-w"] + " [" + strings.Join(p.rest, " ") + "]"
		if got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}

func TestCurl(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.Path)) }))
	out := filepath.Join(t.TempDir(), "out")
	address := strings.TrimPrefix(server.URL, "http://")
	if code := curl([]string{"-q", "-s", "-o", out, "--max-time", "5", address + "/hostname"}); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != "/hostname" {
		t.Errorf("got %q %v", got, err)
	}
	server.Close()
	if got := printed(t, func() { curl([]string{"-s", "-o", "/dev/null", "-w", "%{http_code}", address}) }); got != "000" {
		t.Errorf("there is no listener, and it prints %q", got)
	}
	if code := curl([]string{"-s", "--connect-timeout", "2", address}); code != curlConnect {
		t.Errorf("there is no listener: exit code %d, want %d", code, curlConnect)
	}
	if code := curl([]string{"-s", "http://no-such-name.invalid/"}); code != curlName {
		t.Errorf("no such name: exit code %d, want %d", code, curlName)
	}
}

// printed returns what a function writes to standard output.
func printed(t *testing.T, f func()) string {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "printed"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	old := os.Stdout
	os.Stdout = out
	defer func() { os.Stdout = old }()
	f()
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
