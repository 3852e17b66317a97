package storage

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// The first bytes of a value in etcd.
const (
	protobuf = "k8s\x00"
	cbor     = "\xd9\xd9\xf7"
	text     = `{"`
)

// TestDefaults plays how objects are stored and sent with the default settings.
func TestDefaults(t *testing.T) {
	c := cluster.Start(t, "storage", cluster.Options{})
	c.Run(t, "objects", func(t *testing.T, s cluster.Space) {
		s.Play(t, "API groups and objects as they are", "PROXY="+proxy(t, s))
		stored(t, s, "configmaps/"+s.Namespace+"/one", protobuf)
		stored(t, s, "example.org/stones/"+s.Namespace+"/one", text)
	})
	c.Run(t, "lists", func(t *testing.T, s cluster.Space) { s.Play(t, "Lists") })
}

// TestSettings plays the same with other settings.
func TestSettings(t *testing.T) {
	c := cluster.Start(t, "storage", cluster.Options{Config: "config.yaml"})
	c.Run(t, "objects", func(t *testing.T, s cluster.Space) {
		s.Play(t, "API groups and objects otherwise", "PROXY="+proxy(t, s))
		stored(t, s, "configmaps/"+s.Namespace+"/one", text)
		stored(t, s, "example.org/stones/"+s.Namespace+"/one", cbor)
	})
}

// stored checks how the value of a key begins.
func stored(t *testing.T, s cluster.Space, key, want string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), os.Getenv("CORACLE"), "up", "list", "--output", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Clusters []struct {
			Name  string
			Nodes []struct{ PID int }
		}
	}
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	for _, one := range list.Clusters {
		if one.Name != s.Name {
			continue
		}
		value, err := read(t.Context(), one.Nodes[0].PID, key)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(value), want) {
			t.Errorf("/registry/%s begins with %q, not %q", key, value[:min(len(value), 20)], want)
		}
		return
	}
	t.Errorf("coracle up list does not have cluster %s: %s", s.Name, out)
}

// proxy runs kubectl proxy until the end of the test and returns its address.
func proxy(t *testing.T, s cluster.Space) string {
	t.Helper()
	cmd := s.Command(t.Context(), "kubectl", "proxy", "--port=0")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, ok := strings.Cut(strings.TrimSpace(line), "Starting to serve on ")
	if err != nil || !ok {
		t.Fatalf("kubectl proxy says %q (%v)", line, err)
	}
	return address
}
