package front

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// TestOnlyCoracle keeps a second front off each of the directories of the first.
func TestOnlyCoracle(t *testing.T) {
	at := func(data, run string) *front {
		return &front{cfg: config.Config{Dirs: paths.Dirs{Data: data, Run: run}}}
	}
	root := t.TempDir()
	data, run, other := filepath.Join(root, "data"), filepath.Join(root, "run"), filepath.Join(root, "other")
	unlock, err := at(data, run).lock()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ data, run, used string }{
		{data, other, data},
		{other, run, run},
		{data, run, data},
	} {
		if _, err := at(c.data, c.run).lock(); err == nil || !strings.Contains(err.Error(), "is using "+c.used+":") {
			t.Errorf("with %s and %s: %v", c.data, c.run, err)
		}
	}
	if free, err := at(other, other+"-run").lock(); err != nil { // what a refused one had locked is free
		t.Error(err)
	} else {
		free()
	}
	unlock()
	again, err := at(data, run).lock()
	if err != nil {
		t.Fatal(err)
	}
	again()
}
