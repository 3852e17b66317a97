package main

import (
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

// agnhostImage is Kubernetes' own test image with agnhostFiles.
func agnhostImage(arch, binary, busybox, probe, sources, name, out string) error {
	files, err := agnhostFiles(binary, busybox, probe, sources, nil)
	if err != nil {
		return err
	}
	return writeImage(oci.Image{
		Name: name, Arch: arch, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, Env: []string{imagePath}, Files: files,
	}, out)
}

// agnhostFiles are those of Kubernetes' own test image, as far as it can be made from Go code and busybox: the program, the user
// and the certificate of its Dockerfile, a shell, and test/probe for curl, nc and wget. sources is the directory of its
// Dockerfile. debian are programs of this machine to use instead of busybox's, by their paths in the image: busybox's shell, for
// example, would run its own nc and wget.
func agnhostFiles(binary, busybox, probe, sources string, debian map[string]string) ([]oci.File, error) {
	// Kubernetes' tests of supplemental groups expect this user and these groups in the image.
	base, err := userland(busybox, "user-defined-in-image:x:1000:1000::/home:/bin/sh\n",
		"user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")
	if err != nil {
		return nil, err
	}
	base = slices.DeleteFunc(base, func(f oci.File) bool { return f.Path == "bin/nc" || f.Path == "bin/wget" })
	paths, err := withLibraries(debian)
	if err != nil {
		return nil, err
	}
	paths["bin/probe"], paths["agnhost"] = probe, binary
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		paths[name] = filepath.Join(sources, "porter", name)
	}
	return replaced(base, paths,
		oci.File{Path: "bin/curl", Link: "probe"},
		oci.File{Path: "bin/nc", Link: "probe"},
		oci.File{Path: "bin/wget", Link: "probe"},
		oci.File{Path: "agnhost-2", Link: "agnhost"},
		oci.File{Path: "uploads", Mode: 0o755, Dir: true},
	)
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
