package devices

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// TestMain is the test, or one of the programs in the test's image.
func TestMain(m *testing.M) {
	programs := map[string]func(context.Context) error{
		"plugin": runPlugin, "driver": runDriver,
		"sick": func(context.Context) error { return syscall.Kill(1, syscall.SIGUSR1) }, // in the plug-in's container
	}
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := programs[os.Args[1]](ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestDevices gives devices to containers, by a device plug-in and by a driver for claims.
func TestDevices(t *testing.T) {
	c := cluster.Start(t, "devices", cluster.Options{Images: []string{"busybox"}, Archives: []string{
		cluster.Image(t, "devices.test/driver:1", "plugin"), cluster.ProgramImage(t, "devices.test/sample:1", cluster.Program(t, "sample-device-plugin")),
	}})
	for _, heading := range []string{"A device plug-in", "Upstream's plug-in", "A kubelet that starts again", "A device that fails", "Claims"} {
		c.Space(t).Play(t, heading, "NODE="+c.Nodes[0].Name, "CLUSTER="+c.Name, "CORACLE="+os.Getenv("CORACLE"))
	}
}
