package nodes

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// TestMain is the test, the registry in its image, or the program that only waits in the images of the registry.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "registry" && os.Args[1] != "wait" {
		os.Exit(m.Run())
	}
	if os.Args[1] == "registry" {
		fmt.Fprintln(os.Stderr, runRegistry())
		os.Exit(1)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	<-asked
}

// TestNodes reads what a node says of its pods, and finds it in the machine's files.
func TestNodes(t *testing.T) {
	c := cluster.Start(t, "nodes", cluster.Options{Config: "coracle", Images: []string{"busybox"}, Archives: []string{cluster.Image(t, "nodes.test/registry:1", "registry")}})
	s := c.Space(t)
	for _, heading := range []string{
		"Why a container ended", "A graceful end", "Classes of service, and their control groups", "Too many processes",
		"More memory without a restart", "A look into a container without tools", "Users of its own", "Too much on the disk", "Checkpoints", "Images that nobody uses",
	} {
		t.Run(heading, func(t *testing.T) {
			s.Play(t, heading, "NODE="+c.Nodes[0].Name, "ADDRESS="+c.Nodes[0].IP, "CLUSTER="+c.Name, "CORACLE="+os.Getenv("CORACLE"))
		})
	}
}
