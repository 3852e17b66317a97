package localcluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCollectUnsure: without the list of Secrets, no ConfigMaps are asked for, and no pod's log is copied.
func TestCollectUnsure(t *testing.T) {
	payload := t.TempDir()
	if err := os.WriteFile(filepath.Join(payload, core), []byte("#!/bin/sh\necho \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &Session{Record: Record{Name: "a", Payload: payload}, store: Store{Dir: t.TempDir()}}
	for _, unsure := range []bool{false, true} {
		a := Artifacts{Dir: filepath.Join(t.TempDir(), "out"), UID: os.Geteuid(), GID: os.Getegid(), Unsure: unsure}
		if err := s.Collect(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		asked, err := os.ReadFile(filepath.Join(a.Dir, "objects.yaml"))
		if err != nil || strings.Contains(string(asked), "configmaps") == unsure || !strings.Contains(string(asked), ",persistentvolumes") {
			t.Errorf("unsure is %v, and kubectl is asked: %s (%v)", unsure, asked, err)
		}
		if pods, err := os.ReadFile(filepath.Join(a.Dir, "pods-describe.txt")); err != nil || string(pods) != "kubectl describe pods --all-namespaces\n" {
			t.Errorf("%q (%v)", pods, err)
		}
	}
}
