package faults

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/verdicts"
)

// archive writes an archive of an image that has only one file, which it describes.
func (o *outage) archive(seed uint64, path string) (name, file string, sum [32]byte) {
	o.t.Helper()
	name, file = fmt.Sprintf("coracle.test/own-%d:1", seed), fmt.Sprintf("own-%d", seed)
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	data := make([]byte, 16<<20)
	_, _ = random.Read(data)
	layer := packed(o.t, file, data)
	config := fmt.Appendf(nil, `{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:%x"]},"config":{"Cmd":["/%s"]}}`, sha256.Sum256(layer), file)
	manifest := fmt.Appendf(nil, `[{"Config":"config.json","RepoTags":[%q],"Layers":["layer.tar"]}]`, name)
	if err := os.WriteFile(path, packed(o.t, "layer.tar", layer, "config.json", config, "manifest.json", manifest), 0o644); err != nil {
		o.t.Fatal(err)
	}
	return name, file, sha256.Sum256(data)
}

// packed is a tar archive of files: names and their content by turns.
func packed(t *testing.T, files ...any) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(files); i += 2 {
		data := files[i+1].([]byte)
		err := w.WriteHeader(&tar.Header{Name: files[i].(string), Mode: 0o644, Size: int64(len(data))})
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// importing imports an image on the failing disk, and again if that fails: by the command, or, with each fourth seed, from the directory
// that coracle looks at, again by itself. It returns a check of the image's files.
func (o *outage) importing(seed uint64, random *rand.Rand, row *verdicts.Row) (intact func() error) {
	o.t.Helper()
	const place = "/srv/own.tar"
	name, file, sum := o.archive(seed, o.host.Path(place))
	do := func() error {
		_, err := o.host.TryCoracle("images", "import", place)
		return err
	}
	there := func() error { return o.has(name) }
	byItself := seed/4%4 == 3
	if byItself {
		inside := o.host.Data("images", file+".part")
		o.archive(seed, inside)
		o.disk.Sync() // the archive itself is whole
		do = func() error { return os.Rename(inside, strings.TrimSuffix(inside, "part")+"tar") }
	}
	well := func() error {
		if err := o.healthy(); err != nil || !byItself {
			return err
		}
		return there()
	}
	failed, killed := o.strain(seed, random, 100, do, well)
	row.Seen = "imported"
	if failed != nil || killed {
		row.Seen = "imported at the second try"
		if !byItself {
			o.await("it was imported again", do) // once more, if the kernel still reports an error of before
		}
	}
	return func() error { return o.intact(name, file, sum) }
}

// has returns an error if there is no such image.
func (o *outage) has(name string) error {
	out, err := o.host.TryCoracle("images", "list")
	if err == nil && !strings.Contains(out, strings.TrimSuffix(name, ":1")) {
		err = fmt.Errorf("there is no image %s among\n%s", name, out)
	}
	return err
}

// intact returns an error if the image is not there, or its file, as it was unpacked, has another content.
func (o *outage) intact(name, file string, sum [32]byte) error {
	if err := o.has(name); err != nil {
		return err
	}
	found, err := filepath.Glob(o.host.Data("node", "containerd", "*overlayfs*", "snapshots", "*", "fs", file))
	if err == nil && len(found) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return fmt.Errorf("the unpacked file of %s: %w", name, err)
	}
	data, err := os.ReadFile(found[0])
	if err == nil && sha256.Sum256(data) != sum {
		err = fmt.Errorf("the unpacked file of %s is damaged", name)
	}
	return err
}

// addImage puts an archive of an image, which is on the disk, where coracle finds and imports it while it runs. It returns a check that the image is whole.
func (o *outage) addImage(seed uint64) (intact func() error) {
	o.t.Helper()
	archive := o.host.Data("images", fmt.Sprintf("own-%d.tar", seed%3))
	name, file, sum := o.archive(seed, archive+".part")
	o.disk.Sync()
	if err := os.Rename(archive+".part", archive); err != nil {
		o.t.Fatal(err)
	}
	return func() error { return o.intact(name, file, sum) }
}
