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

// nginxConfig is the configuration in the image nginx: the page that upstream's image has, on the same port.
const nginxConfig = `user nobody;
events {}
http {
	include /etc/nginx/mime.types;
	access_log off;
	server {
		listen 80;
		root /usr/share/nginx/html;
	}
}
`

// conformanceImages writes images for Kubernetes' own tests, each to an archive in a directory: those that are made here out of the list
// of all that the tests name, which e2e.test --list-images prints. programs is a directory with executables for them; sources is
// Kubernetes' directory of test images. nginx, stress, dash, bash, dig and getent are this machine's.
func conformanceImages(arch, busybox, programs, sources, list, dir string) error {
	images, err := conformanceRecipes(busybox, programs, sources)
	if err != nil {
		return err
	}
	names, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	made := map[string]bool{}
	for name := range strings.FieldsSeq(string(names)) {
		repository, tag, _ := strings.Cut(name, ":")
		image, ok := images[repository]
		if !ok {
			continue
		}
		made[repository] = true
		image.Name, image.Arch, image.Env = name, arch, []string{imagePath}
		if err := writeImage(image, filepath.Join(dir, filepath.Base(repository)+"-"+tag+".tar")); err != nil {
			return err
		}
	}
	for repository := range images {
		if !made[repository] {
			return fmt.Errorf("no test names an image %s: remove it from what is made", repository)
		}
	}
	return nil
}

// conformanceShell is the shell of the busybox image. Tests expect the texts of busybox's errors, and that variables with names like data-1 are handed
// on, as upstream's busybox does. Debian's drops these, so bash runs where there are any.
const conformanceShell = `#!/bin/bash
while IFS= read -rd "" variable; do
	[[ ${variable%%=*} =~ ^[A-Za-z_][A-Za-z_0-9]*$ ]] || exec -a "$0" bash "$@"
done </proc/self/environ
exec -a "$0" busybox "$@"
`

// conformanceRecipes are the images, by their names without tags.
func conformanceRecipes(busybox, programs, sources string) (map[string]oci.Image, error) {
	shell, err := userland(busybox, "", "")
	if err != nil {
		return nil, err
	}
	program := func(name string) string { return filepath.Join(programs, name) }
	debian := map[string]string{"bin/sh": "/bin/dash", "bin/bash": "/bin/bash", "bin/dig": "/usr/bin/dig", "bin/getent": "/usr/bin/getent", "bin/printenv": "/usr/bin/printenv"}
	agnhost, err := agnhostFiles(program("agnhost"), busybox, program("probe"), filepath.Join(sources, "agnhost"), debian)
	if err != nil {
		return nil, err
	}
	var failed error
	with := func(base []oci.File, paths map[string]string, further ...oci.File) []oci.File {
		files, err := replaced(base, paths, further...)
		if err != nil && failed == nil {
			failed = err
		}
		return files
	}
	dynamic := func(paths map[string]string) map[string]string {
		all, err := withLibraries(paths)
		if err != nil && failed == nil {
			failed = err
		}
		return all
	}
	html := func(name string) oci.Image { // upstream they are made of agnhost, which is made of Alpine Linux; a test looks for that
		files := map[string]string{"data.json": filepath.Join(sources, name, "html/data.json"), name + ".jpg": filepath.Join(sources, name, "html", name+".jpg")}
		release := oci.File{Path: "etc/os-release", Mode: 0o644, Data: []byte("PRETTY_NAME=\"Debian's busybox, in place of Alpine Linux\"\n")}
		return oci.Image{Files: with(shell, files, release), Cmd: []string{"httpd", "-f", "-p", "80", "-h", "/"}}
	}
	bash := dynamic(map[string]string{"bin/bash": "/bin/bash"})
	bash["bin/probe"] = program("probe")
	nginx := dynamic(map[string]string{"usr/sbin/nginx": "/usr/sbin/nginx"})
	nginx["etc/nginx/mime.types"], nginx["usr/share/nginx/html/index.html"] = "/etc/nginx/mime.types", "/usr/share/nginx/html/index.html"
	consumer := dynamic(map[string]string{"usr/bin/stress": "/usr/bin/stress"})
	consumer["consumer"], consumer["consume-cpu/consume-cpu"] = program("consumer"), program("consume-cpu")
	images := map[string]oci.Image{
		e2eTests + "agnhost":           {Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, Files: agnhost},
		e2eTests + "busybox":           {Cmd: []string{"sh"}, Files: with(shell, bash, oci.File{Path: "bin/sh", Mode: 0o755, Data: []byte(conformanceShell)})},
		e2eTests + "glibc-dns-testing": {Cmd: []string{"sh"}, Files: with(shell, dynamic(debian))},
		e2eTests + "kitten":            html("kitten"),
		e2eTests + "nautilus":          html("nautilus"),
		e2eTests + "nginx": {Cmd: []string{"nginx", "-g", "daemon off;"}, Files: with(shell, nginx,
			oci.File{Path: "etc/nginx/nginx.conf", Mode: 0o644, Data: []byte(nginxConfig)},
			oci.File{Path: "run", Mode: 0o755, Dir: true},
			oci.File{Path: "var/lib/nginx", Mode: 0o755, Dir: true},
			oci.File{Path: "var/log/nginx", Mode: 0o755, Dir: true})},
		e2eTests + "nonewprivs":        {Entrypoint: []string{"/nnp"}, Files: setuid(with(shell, map[string]string{"nnp": program("nnp")}), "nnp")},
		e2eTests + "nonroot":           {Cmd: []string{"sh"}, User: "1234", Files: shell},
		e2eTests + "resource-consumer": {Entrypoint: []string{"/consumer"}, Files: with(nil, consumer)},
		e2eTests + "sample-apiserver": {Entrypoint: []string{"/sample-apiserver"}, Files: with(nil,
			map[string]string{"sample-apiserver": program("sample-apiserver")}, oci.File{Path: "tmp", Mode: 0o1777, Dir: true})},
		"registry.k8s.io/sig-storage/hostpathplugin": {Entrypoint: []string{"/hostpathplugin"}, Files: with(shell, map[string]string{"hostpathplugin": program("standin")})},
		"registry.k8s.io/etcd":                       {Entrypoint: []string{"/usr/local/bin/etcd"}, Files: with(nil, map[string]string{"usr/local/bin/etcd": program("etcd")})},
		"registry.k8s.io/pause":                      {Entrypoint: []string{"/pause"}, User: "65535:65535", Files: with(nil, map[string]string{"pause": program("pause")})},
	}
	return images, failed
}

// replaced is base with these files of this machine, by their paths in the image, and further ones. They replace what base has there.
func replaced(base []oci.File, paths map[string]string, further ...oci.File) ([]oci.File, error) {
	files := slices.DeleteFunc(slices.Clone(base), func(f oci.File) bool {
		return paths[f.Path] != "" || slices.ContainsFunc(further, func(other oci.File) bool { return other.Path == f.Path })
	})
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		info, err := os.Stat(paths[path])
		if err != nil {
			return nil, err
		}
		data, err := os.ReadFile(paths[path])
		if err != nil {
			return nil, err
		}
		files = append(files, oci.File{Path: path, Mode: int64(info.Mode().Perm()), Data: data})
	}
	return append(files, further...), nil
}

// setuid marks one of the files to run as its owner, root.
func setuid(files []oci.File, path string) []oci.File {
	for i := range files {
		if files[i].Path == path {
			files[i].Mode |= 0o4000
		}
	}
	return files
}

// withLibraries adds this machine's shared libraries of its programs. The keys are paths in an image.
func withLibraries(programs map[string]string) (map[string]string, error) {
	paths := map[string]string{}
	maps.Copy(paths, programs)
	for _, program := range programs {
		libraries, err := exec.Command("ldd", program).Output()
		if err != nil {
			return nil, fmt.Errorf("asking for the libraries of %s: %w", program, err)
		}
		for word := range strings.FieldsSeq(string(libraries)) {
			if strings.HasPrefix(word, "/") {
				paths[strings.TrimPrefix(word, "/")] = word
			}
		}
	}
	return paths, nil
}
