package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/diagnose/dashboard"
	"github.com/coracle-dev/coracle/test/ondisk"
)

// TestDashboardToken: the token of a screen is made once, for its owner alone, and a short one is refused.
func TestDashboardToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	first, err := tokenOf(path)
	if err != nil || len(first) < 43 {
		t.Fatalf("the new token is %q: %v", first, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("its file is %v: %v", info, err)
	}
	if again, err := tokenOf(path); err != nil || again != first {
		t.Errorf("the second time it is %q: %v", again, err)
	}
	for _, bad := range []string{"", "short", strings.Repeat("two words ", 8), strings.Repeat("a+b/", 11), strings.Repeat("é", 40)} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := tokenOf(path); err == nil {
			t.Errorf("%q is a token: %q", bad, got)
		}
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
		if err := errors.Join(os.WriteFile(path, []byte(first), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := tokenOf(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("a file with the mode %o: %v", mode, err)
		}
	}
	o := dashboardOptions{tokenFile: path}
	if o.shown(first) == first || !strings.Contains(o.hint(), path) {
		t.Errorf("the token of a file is printed: %s %s", o.shown(first), o.hint())
	}
}

// TestDashboardTokenIsWhole: two that begin at once have the same token, and it is on disk before it is used.
func TestDashboardTokenIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path+".new", []byte("cut o"), 0o600); err != nil { // by a loss of power
		t.Fatal(err)
	}
	tokens := make(chan string)
	for range 8 {
		go func() {
			token, err := tokenOf(path)
			if err != nil {
				t.Error(err)
			}
			tokens <- token
		}()
	}
	first := <-tokens
	for range 7 {
		if other := <-tokens; other != first {
			t.Errorf("the tokens are %q and %q", first, other)
		}
	}
	if paths.Exists(path + ".new") {
		t.Error("another name of the token stays")
	}
	ondisk.Check(t, path)
}

// TestDashboardCertificate: one that was renewed is shown from then on.
func TestDashboardCertificate(t *testing.T) {
	dir := t.TempDir()
	o := dashboardOptions{cert: filepath.Join(dir, "crt"), key: filepath.Join(dir, "key")}
	renew := func(name string) {
		made, _, err := dashboard.SelfSigned([]string{name}, nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		key, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{o.cert: {Type: "CERTIFICATE", Bytes: made.Certificate[0]}, o.key: {Type: "PRIVATE KEY", Bytes: key}} {
			if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	renew("first")
	s := &dashboard.Server{}
	get, err := o.certificate(io.Discard, s)
	if err != nil || !slices.Contains(s.Hosts, "first") {
		t.Fatalf("its hosts are %q, %v", s.Hosts, err)
	}
	renew("second")
	if shown, err := get(nil); err != nil || shown.Leaf.DNSNames[0] != "second" {
		t.Errorf("the former one is shown still, %v", err)
	}
}

// TestOpenBrowser: the desktop gets the address in a file for this user alone, not as an argument; a browser that stays in the
// foreground holds nothing up.
func TestOpenBrowser(t *testing.T) {
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	script := "#!/bin/sh\n{ echo \"$@\"; ls -l \"$1\"; cat \"$1\"; } >" + seen + ".new\nmv " + seen + ".new " + seen + "\nexec sleep 300\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- openBrowser(ctx, "http://coracle-x.localhost:1/#secret") }()
	var data []byte
	for range 500 {
		if data, _ = os.ReadFile(seen); data != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	lines := append(strings.SplitN(string(data), "\n", 3), "", "")
	if strings.Contains(lines[0], "secret") || !strings.HasPrefix(lines[1], "-rw-------") || !strings.Contains(lines[2], "url=http://coracle-x.localhost:1/#secret\"") {
		t.Errorf("the desktop saw %q", data)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the browser")
	}
	if _, err := os.Stat(strings.TrimSpace(lines[0])); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
}
