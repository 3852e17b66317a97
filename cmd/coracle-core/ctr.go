package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/containerd/v2/cmd/ctr/app"
	urfave "github.com/urfave/cli/v3"

	"github.com/coracle-dev/coracle/pkg/runtime/images"
)

// ctr is containerd's command; by default it talks to coracle's containerd about Kubernetes' containers.
func ctr(args []string) int {
	command := app.New()
	defaults := map[string]string{"address": find().dirs.ContainerdSocket(), "namespace": images.Namespace}
	for _, flag := range command.Flags {
		if f, ok := flag.(*urfave.StringFlag); ok && defaults[f.Name] != "" {
			f.Value = defaults[f.Name]
		}
	}
	if err := command.Run(context.Background(), append([]string{"ctr"}, args...)); err != nil {
		fmt.Fprintln(os.Stderr, "ctr:", err)
		return 1
	}
	return 0
}
