package docker

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/coracle-dev/coracle/test/engine"
	"github.com/coracle-dev/coracle/test/hosts"
)

// composeFile is the example in the documentation.
const composeFile = "../../docs/examples/compose.yaml"

// service is a container of the example, with the fields that it uses. Reading fails if there are others.
type service struct {
	Image       string
	Hostname    string
	Restart     string
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	CapAdd      []string `yaml:"cap_add"`
	SecurityOpt []string `yaml:"security_opt"`
}

type composition struct {
	Name     string
	Node     service `yaml:"x-node"`
	Services map[string]service
	Volumes  map[string]struct{}
}

// readComposition reads the example with the given variables.
func readComposition(t *testing.T, variables map[string]string) (c composition) {
	t.Helper()
	data, err := os.ReadFile(composeFile)
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`\$\{(\w+)(?::([-?])([^}]*))?\}`).ReplaceAllStringFunc(string(data), func(use string) string {
		part := regexp.MustCompile(`\$\{(\w+)(?::([-?])([^}]*))?\}`).FindStringSubmatch(use)
		switch value := variables[part[1]]; {
		case value != "":
			return value
		case part[2] == "-":
			return part[3]
		case part[2] == "?":
			t.Fatalf("%s is missing: %s", part[1], part[3])
		}
		return ""
	})
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil {
		t.Fatalf("%s: %v", composeFile, err)
	}
	return c
}

// options returns the options of docker run for a service, as Compose would, for the fields of the example.
func (s service) options(project, name string) (out []string) {
	out = append(out, "--network", project+"_default", "--network-alias", name, "--hostname", s.Hostname, "--restart", s.Restart)
	for flag, values := range map[string][]string{"--cap-add": s.CapAdd, "--security-opt": s.SecurityOpt, "--publish": s.Ports} {
		for _, v := range values {
			out = append(out, flag, v)
		}
	}
	for _, v := range s.Volumes {
		out = append(out, "--volume", project+"_"+v)
	}
	for k, v := range s.Environment {
		out = append(out, "--env", k+"="+v)
	}
	return out
}

// TestComposeHasTheLeast compares the example's privileges with those of the tests.
func TestComposeHasTheLeast(t *testing.T) {
	node := readComposition(t, map[string]string{"CORACLE_TOKEN": "x"}).Node
	want := least()
	var got []string
	for _, c := range node.CapAdd {
		got = append(got, "--cap-add", c)
	}
	for _, o := range node.SecurityOpt {
		if o != "apparmor=unconfined" { // only engines with AppArmor need it
			got = append(got, "--security-opt", o)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the example gives %q, the tests %q", got, want)
	}
}

// compose starts the example and checks connections between pods of all three nodes, beside another cluster. If the
// docker client has no Compose, the test starts the services itself.
func compose(t *testing.T, e *engine.Engine) {
	e = e.For(t)
	c := readComposition(t, map[string]string{"CORACLE_TOKEN": "the-token-of-the-test"})
	if _, err := e.Try("compose", "version"); err == nil {
		t.Log("docker compose is there; it is played nevertheless, so that machines with and without it test the same")
	}
	network := c.Name + "_default"
	e.Docker("network", "create", network)
	beside := run(t, e, "beside", "--network", network, "--", "server") // another cluster on the same network
	nodes := map[string]node{}
	since := time.Now()
	for _, name := range slices.Sorted(maps.Keys(c.Services)) { // agents first: they wait for the server
		s := c.Services[name]
		for _, v := range s.Volumes {
			if volume, _, _ := strings.Cut(v, ":"); !hasKey(c.Volumes, volume) {
				t.Errorf("service %s uses volume %s, which is not declared", name, volume)
			}
		}
		nodes[name] = runWith(t, e, name, s.options(c.Name, name), s.Command)
	}
	server := nodes["server"]
	for _, n := range nodes {
		n.awaitReady(since)
	}
	t.Logf("three nodes ready after %s", time.Since(since).Round(10*time.Millisecond))
	for _, n := range nodes {
		n.importImages()
	}
	server.apply(pods)
	server.exec("kubectl", "rollout", "status", "daemonset/web", "--timeout=300s")
	server.exec("kubectl", "wait", "--for=condition=Ready", "pod/client", "--timeout=300s")
	hosts.Eventually(t, 2*time.Minute, func() error {
		// The probability that 45 requests miss one of three pods is 1 in 28 million.
		out, err := server.try("kubectl", "exec", "client", "--", "sh", "-c",
			"for i in $(seq 45); do probe get http://web/hostname || exit 1; echo; done | sort -u | wc -l")
		if err != nil {
			return err
		}
		return is("the number of nodes whose pods answer", strings.TrimSpace(out), strconv.Itoa(len(nodes)))
	})
	beside.awaitReady(since)
	for n, want := range map[node]int{server: len(nodes), beside: 1} {
		if got := strings.Fields(n.exec("kubectl", "get", "nodes", "--output", "name")); len(got) != want {
			t.Errorf("the cluster of %s has the nodes %s", n.name, got)
		}
	}
	agent := nodes["agent-1"]
	e.Docker("restart", agent.name)
	agent.awaitReady(time.Now())
	e.Docker("restart", server.name)
	server.awaitReady(time.Now())
	server.exec("kubectl", "rollout", "status", "daemonset/web", "--timeout=300s")
	server.probe(2 * time.Minute)
}

func hasKey[V any](m map[string]V, key string) bool { _, ok := m[key]; return ok }
