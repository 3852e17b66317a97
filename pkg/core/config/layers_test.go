package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// write makes files in a directory of the test's and returns the directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPrecedence(t *testing.T) {
	const name, san = "node-name", "tls-san"
	for _, test := range []struct {
		title      string
		files      map[string]string
		env, flags []string
		setting    string
		want       string
		origin     string
	}{
		{"default", nil, nil, nil, "cluster-domain", "cluster.local", "default"},
		{"derived", nil, nil, nil, name, "edge-1", "default: the host name in lower case"},
		{"file over default", map[string]string{"config.yaml": "node-name: f"}, nil, nil, name, "f", "DIR/config.yaml:1"},
		{"drop-in over file", map[string]string{"config.yaml": "node-name: f", "config.yaml.d/a.yaml": "\nnode-name: d"}, nil, nil,
			name, "d", "DIR/config.yaml.d/a.yaml:2"},
		{"later drop-in over earlier", map[string]string{"config.yaml": "", "config.yaml.d/b.yaml": "node-name: b", "config.yaml.d/a.yaml": "node-name: a"},
			nil, nil, name, "b", "DIR/config.yaml.d/b.yaml:1"},
		{"variable over file", map[string]string{"config.yaml": "node-name: f"}, []string{"CORACLE_NODE_NAME=e"}, nil, name, "e", "CORACLE_NODE_NAME"},
		{"empty variable", map[string]string{"config.yaml": "node-name: f"}, []string{"CORACLE_NODE_NAME="}, nil, name, "f", "DIR/config.yaml:1"},
		{"flag over variable", nil, []string{"CORACLE_NODE_NAME=e"}, []string{"--node-name=x"}, name, "x", "--node-name"},
		{"last flag", nil, nil, []string{"--node-name=x", "--node-name", "y"}, name, "y", "--node-name"},
		{"repeated list flag", nil, nil, []string{"--tls-san=a,b", "--tls-san", "c"}, san, "a,b,c", "--tls-san"},
		{"list flag replaces", map[string]string{"config.yaml": "tls-san: [f]"}, []string{"CORACLE_TLS_SAN=e"}, []string{"--tls-san=x"}, san, "x", "--tls-san"},
		{"list variable replaces", map[string]string{"config.yaml": "tls-san: [f]"}, []string{"CORACLE_TLS_SAN=e,g"}, nil, san, "e,g", "CORACLE_TLS_SAN"},
		{"append", map[string]string{"config.yaml": "tls-san: f", "config.yaml.d/a.yaml": "tls-san+: [g, h]"}, nil, nil, san, "f,g,h",
			"DIR/config.yaml:1, DIR/config.yaml.d/a.yaml:1"},
		{"append to default", map[string]string{"config.yaml": "log-level+: etcd=warn"}, nil, nil, "log-level", "info,etcd=warn", "default, DIR/config.yaml:1"},
		{"append under a flag", map[string]string{"config.yaml": "tls-san+: f"}, nil, []string{"--tls-san=x"}, san, "x", "--tls-san"},
		{"empty list", map[string]string{"config.yaml": "disable: [dns]", "config.yaml.d/a.yaml": "disable: []"}, nil, nil, "disable", "", "default"},
		{"commas in pass-through flags", map[string]string{"config.yaml": "kubelet-arg: feature-gates=A=true,B=true"}, nil, nil,
			"kubelet-arg", "feature-gates=A=true,B=true", "DIR/config.yaml:1"},
		{"anchors", map[string]string{"config.yaml": "node-name: &n edge\ntls-san: [*n]"}, nil, nil, san, "edge", "DIR/config.yaml:2"},
		{"path in a file", map[string]string{"config.yaml": "data-dir: sub"}, nil, nil, "data-dir", "DIR/sub", "DIR/config.yaml:1"},
		{"bare switch", nil, nil, []string{"--debug"}, "debug", "true", "--debug"},
		{"switch by variable", nil, []string{"CORACLE_DEBUG=1"}, nil, "debug", "1", "CORACLE_DEBUG"},
		{"value that looks like a flag", nil, nil, []string{"--node-name", "x", "--kubelet-arg", "v=1", "--tls-san", "y"}, san, "y", "--tls-san"},
		{"foreign variables", nil, []string{"CORACLE_SERVICE_HOST=10.0.0.1", "CORACLE_PORT_6443_TCP=x", "CORACLE_INSTALL_X=1", "CORACLE_BENCH=a", "CORACLE_CLUSTER=run-a"}, nil,
			name, "edge-1", "default: the host name in lower case"},
	} {
		t.Run(test.title, func(t *testing.T) {
			flags := test.flags
			var dir string
			if test.files != nil {
				dir = write(t, test.files)
				flags = append(slices.Clone(flags), "--config", filepath.Join(dir, "config.yaml"))
			}
			_, settings, err := inspect(Server, flags, test.env, edge())
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == test.setting })
			got := settings[i]
			hide := func(s string) string { return s }
			if dir != "" {
				hide = func(s string) string { return strings.ReplaceAll(s, dir, "DIR") }
			}
			if v := hide(strings.Join(got.Values, ",")); v != test.want {
				t.Errorf("value %q, want %q", v, test.want)
			}
			if from := hide(got.Origin); from != test.origin {
				t.Errorf("origin %q, want %q", from, test.origin)
			}
		})
	}
}

// TestMistakesOutsideFiles are those of the command line and the environment.
func TestMistakesOutsideFiles(t *testing.T) {
	for _, test := range []struct {
		role       Role
		flags, env []string
		want       string
	}{
		{Server, []string{"--node-nam", "--tls-sans=a", "--zzz", "--node-name=B"}, nil,
			"unknown flag --node-nam; did you mean --node-name?\nunknown flag --tls-sans; did you mean --tls-san?\nunknown flag --zzz\n" +
				"--node-name: \"B\" is not a node name; it must consist of " + NodeNameForm + ", 63 at most"},
		{Server, []string{"--token-fil=a"}, nil, "unknown flag --token-fil; did you mean --token-file?"},
		{Agent, nil, nil, "--server: an agent needs a server to join, as in --server https://HOST:6443"},
		{Server, []string{"--token=a", "--token-file=testdata/files/some.yaml"}, nil, "--token and --token-file are both given; choose one"},
		{Server, []string{"--token=a", "--agent-token=a"}, nil,
			"--agent-token and --token are the same, and then agents could join as servers; make the one for agents another"},
		{Server, []string{"--lb-server-port=6443"}, nil, "--https-listen-port and --lb-server-port are both 6443; each needs its own"},
		{Server, []string{"--datastore-certfile=testdata/files/some.yaml", "--datastore-endpoint=127.0.0.1:2379"}, nil,
			`--datastore-endpoint: "127.0.0.1:2379" is not the address of an etcd such as https://HOST:2379 or unix:///PATH` +
				"\n--datastore-certfile and --datastore-keyfile belong together; give both or none"},
		{Server, []string{"--datastore-cafile=testdata/files/some.yaml"}, nil,
			"--datastore-cafile has a meaning only with --datastore-endpoint, which is not given"},
		{Server, []string{"start"}, nil, `unexpected argument "start": coracle server takes flags only`},
		{Server, []string{"--node-name"}, nil, "flag needs an argument: --node-name"},
		{Server, []string{"-z"}, nil, "unknown shorthand flag: 'z' in -z"},
		{Server, []string{"--debug=maybe"}, nil, `invalid argument "maybe" for "--debug" flag: "maybe" is not true or false`},
		{Server, nil, []string{"CORACLE_DRAIN_ON_STOP=maybe", "CORACLE_NODENAME=a", "OTHER=b"},
			"CORACLE_NODENAME: no such setting; did you mean CORACLE_NODE_NAME?\nCORACLE_DRAIN_ON_STOP: \"maybe\" is not true or false"},
		{Server, nil, []string{"CORACLE_HTTPS_LISTEN_PORT=0"}, `CORACLE_HTTPS_LISTEN_PORT: "0" is not a port; it must be from 1 to 65535`},
		{Server, []string{"--config=/nonexistent/config.yaml"}, nil,
			"--config: reading the configuration: open /nonexistent/config.yaml: no such file or directory"},
		{Server, []string{"--config="}, nil, "--config: the name of the file is empty\n--config: the path is empty"},
		{Agent, []string{"--server=a"}, []string{"CORACLE_CLUSTER_CIDR=10.0.0.0/8"},
			"CORACLE_CLUSTER_CIDR: no such setting; it is a setting of servers, and agents take it from theirs where they need it"},
	} {
		t.Run(strings.Join(append(test.flags, test.env...), " "), func(t *testing.T) {
			_, _, err := resolve(test.role, test.flags, test.env, edge(), nil)
			if err == nil || err.Error() != test.want {
				t.Errorf("got:\n%v\nwant:\n%s", err, test.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, flag := range []string{"--help", "-h"} {
		if _, err := Resolve(Server, []string{"--nonsense", flag}, nil); !errors.Is(err, pflag.ErrHelp) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// TestNoSideEffects: a look at the configuration leaves no trace on disk.
func TestNoSideEffects(t *testing.T) {
	dir := write(t, map[string]string{"config.yaml": "data-dir: data\nrun-dir: /run/x\n"})
	if _, _, err := resolve(Server, []string{"--config", filepath.Join(dir, "config.yaml")}, nil, edge(), nil); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d entries", len(entries))
	}
}

func TestSecretsAreHidden(t *testing.T) {
	cfg, settings, err := inspect(Agent, []string{"--server=a", "--token=abc"}, nil, edge())
	if err != nil || cfg.Join.Token != "abc" {
		t.Fatal(cfg.Join, err)
	}
	for _, s := range settings {
		if slices.Contains(s.Values, "abc") {
			t.Errorf("%s shows the token", s.Name)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "", 3}, {"server", "sevrer", 2}, {"wait", "want", 1}, {"agent", "agents", 1}} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("%s, %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestOnlyNotYet(t *testing.T) {
	late, wrong := NotYet{errors.New("no address")}, errors.New("no such flag")
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing": {nil, false}, "one": {errors.Join(late), true}, "a mistake": {errors.Join(wrong), false},
		"both": {errors.Join(late, wrong), false}, "alone": {late, true},
	} {
		if got := OnlyNotYet(c.err); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
