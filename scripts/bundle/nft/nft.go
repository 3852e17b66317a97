// Package nft collects Debian's nft with every library it needs and the loader, so that it runs on any host.
package nft

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// loaders and library directories, by ELF machine, relative to the root of a Debian file system.
var platforms = map[elf.Machine]struct {
	loader string
	dirs   []string
}{
	elf.EM_X86_64:  {"lib64/ld-linux-x86-64.so.2", []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"}},
	elf.EM_AARCH64: {"lib/ld-linux-aarch64.so.1", []string{"lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu"}},
}

// Gather copies nft from the Debian file system under root to dir, with its libraries, as dir/nft, dir/ld.so and the
// libraries by their link names.
func Gather(root, dir string) error {
	main := filepath.Join(root, "usr/sbin/nft")
	file, err := elf.Open(main)
	if err != nil {
		return fmt.Errorf("opening nft (is the package nftables installed?): %w", err)
	}
	defer file.Close()
	platform, ok := platforms[file.Machine]
	if !ok {
		return fmt.Errorf("%s is for %s, for which nothing is known", main, file.Machine)
	}
	libraries := map[string]string{}
	if err := closure(root, platform.dirs, file, filepath.Base(platform.loader), libraries); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	libraries["nft"] = main
	libraries["ld.so"] = filepath.Join(root, platform.loader)
	for name, path := range libraries {
		if err := install(path, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("taking in %s: %w", path, err)
		}
	}
	return isolate(filepath.Join(dir, "ld.so"))
}

// The file whose libraries a loader loads into every program, and a path of the same length that cannot exist. The
// host's libraries may need a newer C library than the bundled one, and then the loader refuses to start nft.
const (
	hostPreload = "/etc/ld.so.preload\x00"
	noPreload   = "/dev/null/.preload\x00"
)

// isolate makes a loader ignore the host's /etc/ld.so.preload; there is no option or variable for that.
func isolate(loader string) error {
	data, err := os.ReadFile(loader)
	if err != nil {
		return err
	}
	if n := bytes.Count(data, []byte(hostPreload)); n != 1 {
		return fmt.Errorf("%s names /etc/ld.so.preload %d times, not once: its new version needs another look", loader, n)
	}
	return os.WriteFile(loader, bytes.Replace(data, []byte(hostPreload), []byte(noPreload), 1), 0o755)
}

// closure finds every library that file needs, directly or not.
func closure(root string, dirs []string, file *elf.File, loader string, found map[string]string) error {
	needed, err := file.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, name := range needed {
		if _, seen := found[name]; seen || name == loader {
			continue
		}
		i := slices.IndexFunc(dirs, func(d string) bool {
			_, err := os.Stat(filepath.Join(root, d, name))
			return err == nil
		})
		if i < 0 {
			return fmt.Errorf("library %s, which nft needs, is in none of %v under %s", name, dirs, root)
		}
		path := filepath.Join(root, dirs[i], name)
		found[name] = path
		library, err := elf.Open(path)
		if err != nil {
			return fmt.Errorf("opening library %s: %w", path, err)
		}
		err = closure(root, dirs, library, loader, found)
		library.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func install(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}
