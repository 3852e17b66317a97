package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/scripts/bundle/oci"
)

// Registries in the names of the images of cri-tools' validation suite.
const (
	criTools = "gcr.io/k8s-staging-cri-tools/"
	e2eTests = "registry.k8s.io/e2e-test-images/"
)

// critestImages writes stand-ins for the images of cri-tools' validation suite, each to an archive in a directory. They have what the
// suite looks at: the users, the programs' names, ports and output. standin is test/conformance/standin.
func critestImages(arch, busybox, standin, dir string) error {
	base, err := userland(busybox, "default-user:x:1000:1000::/home:/bin/sh\n",
		"default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(standin)
	if err != nil {
		return err
	}
	with := func(name string, mode int64) []oci.File {
		return append(slices.Clone(base), oci.File{Path: "bin/" + name, Mode: mode, Data: program})
	}
	shell, err := shellFiles(base, busybox, program)
	if err != nil {
		return err
	}
	images := []oci.Image{
		{Name: e2eTests + "busybox:1.29-2", Files: shell},
		{Name: e2eTests + "nginx:1.14-2", Files: with("nginx", 0o755), Cmd: []string{"nginx", "-port=80", "master process"}},
		{Name: e2eTests + "httpd:2.4.39-4", Files: with("httpd", 0o755), Cmd: []string{"httpd"}},
		{Name: e2eTests + "nonewprivs:1.3", Files: with("nnp", 0o4755), Cmd: []string{"nnp"}},
		{Name: criTools + "hostnet-nginx-" + arch + ":latest", Files: with("nginx", 0o755), Cmd: []string{"nginx", "-port=12003"}},
		{Name: criTools + "test-image-predefined-group:latest", Files: base, User: "1000"},
		{Name: criTools + "test-image-user-uid:latest", Files: base, User: "1002"},
		{Name: criTools + "test-image-user-username:latest", Files: base, User: "www-data"},
		{Name: criTools + "test-image-user-uid-group:latest", Files: base, User: "1003:1004"},
		{Name: criTools + "test-image-user-username-group:latest", Files: base, User: "www-data:1004"},
	}
	for name, text := range map[string]string{
		criTools + "test-image-1:latest":      "one",
		criTools + "test-image-2:latest":      "two",
		criTools + "test-image-3:latest":      "three",
		criTools + "test-image-latest:latest": "latest",
		criTools + "test-image-digest:latest": "digest",
		criTools + "test-image-tag:test":      "test",
		criTools + "test-image-tag:all":       "all",
		criTools + "test-image-tags:1":        "same",
		criTools + "test-image-tags:2":        "same",
		criTools + "test-image-tags:3":        "same",
		// The suite pulls this also as k8s.gcr.io/pause:3.9, from the same mirror.
		"registry.k8s.io/pause:3.9": "pause",
	} {
		// Images with another text have another ID.
		images = append(images, oci.Image{Name: name, Files: base, Labels: map[string]string{"text": text}})
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, image := range images {
		image.Arch, image.Env = arch, []string{imagePath}
		if image.Cmd == nil {
			image.Cmd = []string{"sh"}
		}
		file := strings.ReplaceAll(image.Name[strings.LastIndexByte(image.Name, '/')+1:], ":", "-")
		if err := writeImage(image, filepath.Join(dir, file+".tar")); err != nil {
			return err
		}
	}
	return nil
}

// shellFiles are files like those of the suite's busybox, which is not Debian's: with ipcs and pgrep, with a file of its own for ls, and a shell that
// runs that.
func shellFiles(base []oci.File, busybox string, standin []byte) ([]oci.File, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	files := slices.DeleteFunc(slices.Clone(base), func(f oci.File) bool {
		return slices.Contains([]string{"bin/ipcs", "bin/ls", "bin/pgrep", "bin/sh"}, f.Path)
	})
	return append(files,
		oci.File{Path: "bin/ls", Mode: 0o755, Data: program},
		oci.File{Path: "bin/standin", Mode: 0o755, Data: standin},
		oci.File{Path: "bin/ipcs", Link: "standin"},
		oci.File{Path: "bin/pgrep", Link: "standin"},
		oci.File{Path: "bin/sh", Link: "standin"},
	), nil
}
