package containerd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/errdefs"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/opencontainers/go-digest"
)

// TestResumeSafely writes a part of a content, ends, and writes the rest: what can be continued is, and what is not safe begins anew.
func TestResumeSafely(t *testing.T) {
	const ref, text = "tar-layer.tar", "a part and the rest"
	want := digest.FromString(text)
	for name, c := range map[string]struct {
		between func(t *testing.T, s content.Store, data string)
		offset  int64 // of the second writer
	}{
		"continued": {func(*testing.T, content.Store, string) {}, 6},
		"a wrong digest": {func(t *testing.T, s content.Store, _ string) {
			w, err := s.Writer(t.Context(), content.WithRef(ref))
			if err == nil {
				err = w.Commit(t.Context(), 0, want)
			}
			if !errdefs.IsFailedPrecondition(err) {
				t.Fatal(err)
			}
		}, 0},
		"what cannot be flushed": {func(t *testing.T, _ content.Store, data string) {
			if err := errors.Join(os.Remove(data), os.Symlink("/dev/full/none", data)); err != nil {
				t.Fatal(err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			inner, err := local.NewStore(root)
			var instance any
			for range 2 { // a second start in the process
				if instance, err = resumeSafely(inner, root, err); err != nil {
					t.Fatal(err)
				}
				instance, err = resumeSafely(instance, root, err)
			}
			s := instance.(content.Store)
			w, err := s.Writer(t.Context(), content.WithRef(ref))
			if err == nil {
				_, err = w.Write([]byte(text[:6]))
			}
			if syncer, ok := w.(content.Syncer); !ok || syncer.Sync() != nil {
				t.Error("containerd cannot flush it before it locks its database")
			}
			if err := errors.Join(err, w.Close()); err != nil {
				t.Fatal(err)
			}
			parts, err := filepath.Glob(filepath.Join(root, "ingest", "*", "data"))
			if err != nil || len(parts) != 1 {
				t.Fatalf("the parts are %v: %v", parts, err)
			}
			c.between(t, s, parts[0])
			w, err = s.Writer(t.Context(), content.WithRef(ref))
			if err != nil {
				t.Fatal(err)
			}
			status, err := w.Status()
			if err != nil || status.Offset != c.offset {
				t.Errorf("it continues at %d, want %d: %v", status.Offset, c.offset, err)
			}
			if _, err := w.Write([]byte(text[status.Offset:])); err != nil {
				t.Fatal(err)
			}
			if err := w.Commit(t.Context(), 0, want); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := resumeSafely(nil, "", errors.New("cause")); err == nil {
		t.Error("an error is lost")
	}
	if _, err := resumeSafely("another thing", "", nil); err == nil || !strings.Contains(err.Error(), "string") {
		t.Error("it accepts anything")
	}
	for _, r := range registry.Graph(func(*plugin.Registration) bool { return false }) {
		if r.URI() == contentPlugin {
			return
		}
	}
	t.Error("containerd has no such plugin any more: " + contentPlugin)
}
