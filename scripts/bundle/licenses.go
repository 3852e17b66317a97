package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// texts are licence texts with whom each covers. Equal texts are kept once: most modules share a few.
type texts struct {
	covers map[string][]string // by text
	order  []string
}

func (t *texts) add(text, who string) {
	text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	if t.covers == nil {
		t.covers = map[string][]string{}
	}
	if _, ok := t.covers[text]; !ok {
		t.order = append(t.order, text)
	}
	if !slices.Contains(t.covers[text], who) {
		t.covers[text] = append(t.covers[text], who)
	}
}

// licenseFile matches the names of files that say under which terms a module may be used.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright|patents)([-_.].*)?$`)

// writeLicenses collects the licences of everything in the payload at dir and in the front: of every Go module linked
// into an executable, of Go, and of the Debian packages that files were taken from.
func writeLicenses(root, debian, dir, out string) error {
	var t texts
	own, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return err
	}
	t.add(string(own), "coracle")
	linked, err := linkedModules(root, dir)
	if err != nil {
		return err
	}
	for _, m := range linked {
		if err := addModule(&t, m); err != nil {
			return err
		}
	}
	goLicense, err := os.ReadFile(filepath.Join(runtime.GOROOT(), "LICENSE"))
	if err != nil {
		return fmt.Errorf("reading Go's licence: %w", err)
	}
	t.add(string(goLicense), "Go "+strings.TrimPrefix(runtime.Version(), "go"))
	if err := addDebian(&t, debian, dir); err != nil {
		return err
	}

	var b strings.Builder
	b.WriteString("coracle is licensed under the Apache License 2.0. It contains the following works, under these terms.\n")
	for _, text := range t.order {
		fmt.Fprintf(&b, "\n%s\n", strings.Repeat("=", 80))
		for _, who := range t.covers[text] {
			fmt.Fprintf(&b, "%s\n", who)
		}
		fmt.Fprintf(&b, "%s\n\n%s\n", strings.Repeat("-", 80), text)
	}
	return os.WriteFile(out, []byte(b.String()), 0o644)
}

// linkedModules lists every module in the payload's Go executables and in the front, sorted.
func linkedModules(root, dir string) ([]module.Version, error) {
	seen := map[module.Version]bool{}
	for _, name := range []string{"coracle-core", "coracle-cni", "runc", "containerd-shim-runc-v2"} {
		info, err := buildinfo.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("reading which modules are in %s: %w", name, err)
		}
		for _, m := range append(info.Deps, &info.Main) {
			if m.Replace != nil {
				m = m.Replace
			}
			seen[module.Version{Path: m.Path, Version: m.Version}] = true
		}
	}
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", "./cmd/coracle")
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the front's modules: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			seen[module.Version{Path: path, Version: version}] = true
		}
	}
	var all []module.Version
	for m := range seen {
		if m.Version != "" && m.Version != "(devel)" && m.Path != "" {
			all = append(all, m)
		}
	}
	module.Sort(all)
	return all, nil
}

// addModule adds the licences at a module's root and, for a module that is part of a repository with one licence for
// all, at the repository's root.
func addModule(t *texts, m module.Version) error {
	dir, err := moduleDir(m)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading %s: %w", m, err)
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		t.add(string(text), m.String())
		found = true
	}
	if !found {
		return fmt.Errorf("%s has no licence file", m)
	}
	return nil
}

func moduleDir(m module.Version) (string, error) {
	path, err := module.EscapePath(m.Path)
	if err != nil {
		return "", err
	}
	version, err := module.EscapeVersion(m.Version)
	if err != nil {
		return "", err
	}
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return "", err
	}
	return filepath.Join(strings.TrimSpace(string(cache)), path+"@"+version), nil
}

// debianParts are the Debian packages in the payload besides nft's libraries: linked statically or as a program.
var debianParts = []string{"busybox-static", "nftables", "libc6", "libseccomp2"}

// commonLicense matches a Debian copyright file's reference to a text that Debian keeps once.
var commonLicense = regexp.MustCompile(`/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])`)

func addDebian(t *texts, debian, dir string) error {
	libraries, err := os.ReadDir(filepath.Join(dir, "nft.d"))
	if err != nil {
		return err
	}
	names := slices.Clone(debianParts)
	for _, l := range libraries {
		pkg, err := owner(debian, l.Name())
		if err != nil {
			return err
		}
		if pkg != "" && !slices.Contains(names, pkg) {
			names = append(names, pkg)
		}
	}
	slices.Sort(names)
	var common []string
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(debian, "usr/share/doc", name, "copyright"))
		if err != nil {
			return fmt.Errorf("reading the licence of Debian's %s: %w", name, err)
		}
		t.add(string(text), "Debian package "+name)
		for _, match := range commonLicense.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(common, match[1]) {
				common = append(common, match[1])
			}
		}
	}
	slices.Sort(common)
	for _, name := range common {
		text, err := os.ReadFile(filepath.Join(debian, "usr/share/common-licenses", name))
		if err != nil {
			continue // a general mention, as of "the GPL"
		}
		t.add(string(text), "referred to above as /usr/share/common-licenses/"+name)
	}
	return nil
}

// owner returns the Debian package that a library is from; "" for what is not a library.
func owner(debian, library string) (string, error) {
	if !strings.Contains(library, ".so.") {
		return "", nil
	}
	lists, err := filepath.Glob(filepath.Join(debian, "var/lib/dpkg/info/*.list"))
	if err != nil {
		return "", err
	}
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			return "", err
		}
		if strings.Contains(string(data), "-linux-gnu/"+library+"\n") {
			name := strings.TrimSuffix(filepath.Base(list), ".list")
			name, _, _ = strings.Cut(name, ":")
			return name, nil
		}
	}
	return "", fmt.Errorf("no Debian package has %s", library)
}
