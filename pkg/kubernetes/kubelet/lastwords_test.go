package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLastWords: of the files of a container that was restarted often the newest stay; those of others, and everything else, are not touched.
func TestLastWords(t *testing.T) {
	root := t.TempDir()
	if err := removeLastWords(root); err != nil {
		t.Fatalf("before there is a pod: %v", err)
	}
	write := func(name string, age time.Duration) string {
		path := filepath.Join(root, "pods", name)
		when := time.Now().Add(-age)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kept := []string{write("p/etc-hosts", time.Hour), write("p/volumes/kubernetes.io~empty-dir/v/file", time.Hour),
		write("p/containers/calm/1", time.Hour), write("p/containers/calm/2", 2*time.Hour), write("p/containers/calm/3", 3*time.Hour)}
	var gone []string
	for i := range 10 {
		path := write(fmt.Sprintf("p/containers/restless/%x", (i*7)%10), time.Duration(i)*time.Minute)
		if i < keptLastWords {
			kept = append(kept, path)
		} else {
			gone = append(gone, path)
		}
	}
	if err := removeLastWords(root); err != nil {
		t.Fatal(err)
	}
	for _, path := range kept {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	for _, path := range gone {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left (%v)", path, err)
		}
	}
}
