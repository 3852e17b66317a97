package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/scripts/bundle/oci"
)

// pauseImage wraps Kubernetes' pause program, which holds a pod's namespaces, into an image.
func pauseImage(arch, binary, name, out string) error {
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	return writeImage(oci.Image{
		Name:       name,
		Arch:       arch,
		Entrypoint: []string{"/pause"},
		User:       "65535:65535",
		Files:      []oci.File{{Path: "pause", Mode: 0o755, Data: data}},
	}, out)
}

// programImage wraps a static program, which is then the image's entry point.
func programImage(arch, binary, user, name, out string) error {
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	return writeImage(oci.Image{
		Name: name, Arch: arch, Entrypoint: []string{"/program"}, User: user, Files: []oci.File{{Path: "program", Mode: 0o755, Data: data}},
	}, out)
}

// imagePath is the PATH in the test images.
const imagePath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// busyboxImage is the tests' image with a shell: a static busybox and the client test/probe.
func busyboxImage(arch, busybox, probe, name, out string) error {
	files, err := userland(busybox, "", "")
	if err != nil {
		return err
	}
	client, err := os.ReadFile(probe)
	if err != nil {
		return err
	}
	files = append(files, oci.File{Path: "bin/probe", Mode: 0o755, Data: client})
	return writeImage(oci.Image{Name: name, Arch: arch, Cmd: []string{"sh"}, Env: []string{imagePath}, Files: files}, out)
}

// agnhostImage is Kubernetes' own test image, as far as it can be made from Go code and busybox: the program, the user
// and the certificate of its Dockerfile, a shell, and test/probe for curl, nc and wget. sources is the directory of its
// Dockerfile. shell is a program of this machine to use instead of busybox's; "" means none.
func agnhostImage(arch, binary, busybox, probe, shell, sources, name, out string) error {
	// Kubernetes' tests of supplemental groups expect this user and these groups in the image.
	files, err := userland(busybox, "user-defined-in-image:x:1000:1000::/home:/bin/sh\n",
		"user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	client, err := os.ReadFile(probe)
	if err != nil {
		return err
	}
	ours := []string{"bin/nc", "bin/wget"}
	if shell != "" {
		ours = append(ours, "bin/sh")
	}
	files = slices.DeleteFunc(files, func(f oci.File) bool { return slices.Contains(ours, f.Path) })
	if shell != "" {
		parts, err := debianShell(shell)
		if err != nil {
			return err
		}
		files = append(files, parts...)
	}
	files = append(files,
		oci.File{Path: "bin/probe", Mode: 0o755, Data: client},
		oci.File{Path: "bin/curl", Link: "probe"},
		oci.File{Path: "bin/nc", Link: "probe"},
		oci.File{Path: "bin/wget", Link: "probe"},
		oci.File{Path: "agnhost", Mode: 0o755, Data: program},
		oci.File{Path: "agnhost-2", Link: "agnhost"},
		oci.File{Path: "uploads", Mode: 0o755, Dir: true},
	)
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		data, err := os.ReadFile(filepath.Join(sources, "porter", name))
		if err != nil {
			return err
		}
		files = append(files, oci.File{Path: name, Mode: 0o644, Data: data})
	}
	return writeImage(oci.Image{
		Name: name, Arch: arch, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, Env: []string{imagePath}, Files: files,
	}, out)
}

// debianShell is this machine's shell with its libraries: busybox's shell prefers its built-in nc.
func debianShell(program string) ([]oci.File, error) {
	libraries, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("asking for the libraries of %s: %w", program, err)
	}
	paths := map[string]string{"bin/sh": program}
	for word := range strings.FieldsSeq(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			paths[strings.TrimPrefix(word, "/")] = word
		}
	}
	var files []oci.File
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		data, err := os.ReadFile(paths[path])
		if err != nil {
			return nil, err
		}
		files = append(files, oci.File{Path: path, Mode: 0o755, Data: data})
	}
	return files, nil
}

// userland is a root file system with busybox and a link for each of its applets. It has these users and groups besides
// root and nobody, as lines of passwd and group.
func userland(busybox, users, groups string) ([]oci.File, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command("/bin/busybox", "--list").Output() // the other may be for another architecture; both are of the same Debian
	if err != nil {
		return nil, err
	}
	files := []oci.File{
		{Path: "bin", Mode: 0o755, Dir: true},
		{Path: "bin/busybox", Mode: 0o755, Data: program},
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			files = append(files, oci.File{Path: "bin/" + applet, Link: "busybox"})
		}
	}
	return append(files,
		oci.File{Path: "etc", Mode: 0o755, Dir: true},
		oci.File{Path: "etc/group", Mode: 0o644, Data: []byte(
			"root:x:0:\nnobody:x:65534:\n" + groups)},
		oci.File{Path: "etc/passwd", Mode: 0o644, Data: []byte(
			"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n" + users)},
		oci.File{Path: "home", Mode: 0o755, Dir: true},
		oci.File{Path: "root", Mode: 0o700, Dir: true},
		oci.File{Path: "tmp", Mode: 0o1777, Dir: true},
		oci.File{Path: "var", Mode: 0o755, Dir: true},
	), nil
}

func writeImage(image oci.Image, out string) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := image.Write(f); err != nil {
		return err
	}
	return f.Close()
}
