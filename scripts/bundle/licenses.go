package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// texts are licence texts with the parts that each covers. Equal texts are kept once: most modules share a few.
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

// licenseFile matches the names of files with the terms of use of a module.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright|patents)([-_.].*)?$`)

// writeLicenses collects the licences of everything in the payload at dir and in the front: of every Go package that is
// linked into an executable, of Go, of the page's npm packages, and of the Debian packages whose files are included.
func writeLicenses(root, overlay, debian, dir, out string) error {
	var t texts
	own, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return err
	}
	t.add(string(own), "coracle")
	if err := addModules(&t, root, overlay); err != nil {
		return err
	}
	if err := addPage(&t, root); err != nil {
		return err
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

// program is one executable in the payload or the front, with the build settings that decide what is linked in.
type program struct {
	dir  string // of the module, relative to the root
	pkg  string
	tags string // "" for those of scripts/tags
	cgo  string
}

var programs = []program{
	{".", "./cmd/coracle", "", "0"},
	{".", "./cmd/coracle-core", "", "0"},
	{".", "./cmd/coracle-cni", "", "0"},
	{"scripts/bundle", "github.com/opencontainers/runc", "seccomp urfave_cli_no_docs netgo osusergo", "1"},
	{".", "./cmd/containerd-shim-runc-v2", "no_grpc", "0"},
}

// licenseDirs lists the directories that may have the licences of everything that is linked in: those of all packages
// and those above them up to their modules' roots, sorted, with the module as "path@version".
func licenseDirs(root, overlay string) (dirs []string, modules map[string]string, err error) {
	modules = map[string]string{}
	ours, err := os.ReadFile(filepath.Join(root, "scripts/tags"))
	if err != nil {
		return nil, nil, err
	}
	for _, p := range programs {
		p.tags = cmp.Or(p.tags, strings.TrimSpace(string(ours)))
		list := exec.Command("go", "list", "-deps", "-tags", p.tags,
			"-f", "{{with .Module}}{{.Path}}@{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}", p.pkg)
		if p.dir == "." {
			list.Args = slices.Insert(list.Args, 2, "-overlay", overlay)
		}
		list.Dir, list.Stderr = filepath.Join(root, p.dir), os.Stderr
		list.Env = append(os.Environ(), "CGO_ENABLED="+p.cgo)
		out, err := list.Output()
		if err != nil {
			return nil, nil, fmt.Errorf("listing what is linked into %s: %w", p.pkg, err)
		}
		for line := range strings.Lines(string(out)) {
			field := strings.Split(strings.TrimSpace(line), "\t")
			if len(field) != 3 || strings.HasSuffix(field[0], "@") {
				continue // coracle's own
			}
			for dir := field[2]; strings.HasPrefix(dir, field[1]); dir = filepath.Dir(dir) {
				modules[dir] = field[0]
			}
		}
	}
	return slices.Sorted(maps.Keys(modules)), modules, nil
}

// addModules adds the licences of all modules that are linked in, and of third-party code in them.
func addModules(t *texts, root, overlay string) error {
	dirs, modules, err := licenseDirs(root, overlay)
	if err != nil {
		return err
	}
	licensed := map[string]bool{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		_, below, _ := strings.Cut(dir, modules[dir][strings.LastIndexByte(modules[dir], '@'):]) // the part in the module
		for _, e := range entries {
			if e.IsDir() || !licenseFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			t.add(string(text), modules[dir]+below)
			licensed[modules[dir]] = true
		}
	}
	for _, m := range modules {
		if !licensed[m] {
			return fmt.Errorf("%s has no licence file", m)
		}
	}
	return nil
}

// pagePackages lists the npm packages that the page of coracle dashboard is made of, as "name@version"; scripts/dashboard has left
// their licences.
func pagePackages(root string) (names []string, err error) {
	entries, err := os.ReadDir(pageLicenses(root))
	for _, e := range entries {
		names = append(names, strings.ReplaceAll(e.Name(), "+", "/"))
	}
	return names, err
}

func pageLicenses(root string) string { return filepath.Join(root, "build/dashboard/licenses") }

// addPage adds the licences of the page's packages.
func addPage(t *texts, root string) error {
	names, err := pagePackages(root)
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(pageLicenses(root), strings.ReplaceAll(name, "/", "+")))
		if err != nil {
			return err
		}
		t.add(string(text), "npm package "+name)
	}
	return nil
}

// debianParts are the Debian packages in the payload besides nft's libraries: linked statically, or as a program.
var debianParts = []string{"busybox-static", "nftables", "libc6", "libseccomp2"}

// commonLicense matches a Debian copyright file's reference to a text that Debian keeps once.
var commonLicense = regexp.MustCompile(`/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])`)

// debianPackages lists the Debian packages whose files are in the payload at dir, sorted.
func debianPackages(debian, dir string) ([]string, error) {
	libraries, err := os.ReadDir(filepath.Join(dir, "nft.d"))
	if err != nil {
		return nil, err
	}
	names := slices.Clone(debianParts)
	for _, l := range libraries {
		pkg, err := owner(debian, l.Name())
		if err != nil {
			return nil, err
		}
		if pkg != "" && !slices.Contains(names, pkg) {
			names = append(names, pkg)
		}
	}
	slices.Sort(names)
	return names, nil
}

func addDebian(t *texts, debian, dir string) error {
	names, err := debianPackages(debian, dir)
	if err != nil {
		return err
	}
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

// owner returns the Debian package of a library; "" for other files.
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
