package main

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// goPrograms are the executables built by Go, by their path in build/ARCH.
var goPrograms = []string{
	"coracle", "payload/coracle-core", "payload/coracle-cni", "payload/runc", "payload/containerd-shim-runc-v2",
}

// programs adds the Go programs in a released executable with the modules that are linked into each, as recorded by
// Go's linker. Coracle's own programs have the release's version.
func (s *sbom) programs(build, file, arch, version string) error {
	for _, path := range goPrograms {
		info, err := buildinfo.ReadFile(filepath.Join(build, path))
		if err != nil {
			return fmt.Errorf("finding what %s is made of: %w", path, err)
		}
		name := filepath.Base(path)
		if name == "coracle" {
			name = "coracle-front"
		}
		foreign := info.Main.Sum != "" || info.Main.Replace != nil // else it is coracle's
		if foreign {
			version = info.Main.Version
		}
		id := spdxID("Program", name, arch)
		s.add(spdxPackage{Name: name, ID: id, Version: version, Purpose: "APPLICATION", SourceInfo: "built with " + info.GoVersion})
		s.relate(file, "CONTAINS", id)
		goVersion := strings.TrimPrefix(info.GoVersion, "go")
		s.relate(id, "DEPENDS_ON", s.pack("stdlib", goVersion, "pkg:golang/stdlib@"+goVersion))
		if foreign {
			s.relate(id, "DEPENDS_ON", s.module(&info.Main))
		}
		for _, m := range info.Deps {
			s.relate(id, "DEPENDS_ON", s.module(m))
		}
	}
	return nil
}

// module adds a Go module that is linked in, and returns its identifier. One that a directory replaces is the module with changes of coracle's.
func (s *sbom) module(m *debug.Module) string {
	source := ""
	for m.Replace != nil {
		if m.Replace.Sum == "" {
			source = "with the changes of scripts/bundle/overlay/patched.go"
			break
		}
		m = m.Replace
	}
	source = cmp.Or(source, "go.sum: "+m.Sum)
	id := spdxID("Go", m.Path, m.Version)
	s.add(spdxPackage{
		Name: m.Path, ID: id, Version: m.Version, Download: "https://proxy.golang.org/" + escapeModule(m.Path) + "/@v/" + escapeModule(m.Version) + ".zip",
		SourceInfo: source,
		References: []spdxExternal{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + strings.ToLower(m.Path) + "@" + purlVersion(m.Version)}},
	})
	return id
}

// escapeModule writes a module's path as the module proxy has it: with !x for X.
func escapeModule(path string) string {
	var b strings.Builder
	for _, r := range path {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('!')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// page adds the npm packages that the page of coracle dashboard is made of.
func (s *sbom) page(root, file string) error {
	names, err := pagePackages(root)
	if err != nil {
		return err
	}
	for _, name := range names {
		i := strings.LastIndexByte(name, '@')
		s.relate(file, "CONTAINS", s.pack(name[:i], name[i+1:], "pkg:npm/"+strings.Replace(name[:i], "@", "%40", 1)+"@"+name[i+1:]))
	}
	return nil
}

// debian adds the Debian packages whose files are in the payload.
func (s *sbom) debian(payload, root, file, arch string) error {
	names, err := debianPackages(root, payload)
	if err != nil {
		return err
	}
	for _, name := range names {
		version, err := packageVersion(root, name)
		if err != nil {
			return err
		}
		id := spdxID("Debian", name, version, arch)
		s.add(spdxPackage{Name: name, ID: id, Version: version, References: []spdxExternal{
			{"PACKAGE-MANAGER", "purl", "pkg:deb/debian/" + name + "@" + purlVersion(version) + "?arch=" + arch},
		}})
		s.relate(file, "CONTAINS", id)
	}
	return nil
}

// image adds the content of a container image: that of the executable, and this machine's CA certificates.
func (s *sbom) image(image, executable string) error {
	for _, r := range slices.Clone(s.doc.Relationships) {
		if r.From == executable {
			s.relate(image, r.Type, r.To)
		}
	}
	version, err := packageVersion("/", "ca-certificates")
	if err != nil {
		return err
	}
	s.relate(image, "CONTAINS", s.pack("ca-certificates", version, "pkg:deb/debian/ca-certificates@"+purlVersion(version)+"?arch=all"))
	return nil
}
