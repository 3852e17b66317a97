package nodes

import (
	"testing"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// TestNodes reads what a node says of its pods, and finds it in the machine's files.
func TestNodes(t *testing.T) {
	c := cluster.Start(t, "nodes", cluster.Options{Config: "coracle", Images: []string{"busybox"}})
	s := c.Space(t)
	for _, heading := range []string{
		"Why a container ended", "A graceful end", "Classes of service, and their control groups", "Too many processes",
		"More memory without a restart", "A look into a container without tools", "Users of its own", "Too much on the disk", "Checkpoints",
	} {
		t.Run(heading, func(t *testing.T) { s.Play(t, heading, "NODE="+c.Nodes[0].Name, "ADDRESS="+c.Nodes[0].IP) })
	}
}
