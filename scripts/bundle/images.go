package main

import (
	"os"

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
