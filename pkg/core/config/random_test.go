package config

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// scraps are pieces of which random settings are made: good ones, bad ones, and hostile ones.
var scraps = [...]string{
	"", "a", "edge-1", "true", "false", "0", "1", "6443", "-1", "99999999999999999999", "0644", "info", "debug", "json", "vxlan", "none", "dns",
	"10.42.0.0/16", "10.43.0.0/16", "fd42::/56", "fd43::/112", "0.0.0.0/0", "::/0", "10.0.0.1", "fd00::1", "fe80::1%eth0", "::ffff:1.2.3.4", "1.2.3.4/33",
	"30000-32767", "-", "--", "=", "a=b", "a=b:NoSchedule", ",", ",,", "[", "]", "{", "}", ":", "*a", "&a", "!!binary x", "~", "null", "\x00", "\n", "\t",
	"'", "\"", "é", "\xff\xfe", "../../..", "/", "/dev/null", "/tmp", "https://a", "https://[::1]:1", "%", "a=%s", "<<",
}

type dice struct{ *rand.Rand }

func (d dice) scrap() string {
	var b strings.Builder
	for range 1 + d.IntN(3) {
		b.WriteString(scraps[d.IntN(len(scraps))])
	}
	return b.String()
}

// name is most often that of a setting.
func (d dice) name(table []setting) string {
	if d.IntN(10) == 0 {
		return d.scrap()
	}
	return table[d.IntN(len(table))].name
}

func (d dice) file(table []setting) string {
	var b strings.Builder
	for range d.IntN(8) {
		b.WriteString(d.name(table))
		if d.IntN(5) == 0 {
			b.WriteString("+")
		}
		b.WriteString(": ")
		switch d.IntN(4) {
		case 0:
			b.WriteString("[" + d.scrap() + ", " + d.scrap() + "]")
		case 1:
			b.WriteString("{" + d.scrap() + ": " + d.scrap() + "}")
		default:
			b.WriteString(d.scrap())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestNotUTF8: a value that JSON could not carry is refused.
func TestNotUTF8(t *testing.T) {
	if _, err := Resolve(Agent, []string{"--server=https://\xff:6443"}, nil); err == nil || !strings.Contains(err.Error(), "is not UTF-8") {
		t.Errorf("got %v", err)
	}
}

// TestRandomConfigurations throws 1000 configurations at Resolve. Each must give a configuration or an error, soon.
func TestRandomConfigurations(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(1, 2))}
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.Mkdir(file+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	began, good := time.Now(), 0
	for range 1000 {
		role := []Role{Server, Agent}[d.IntN(2)]
		r := newRaw()
		table := r.table(role)
		var args, env []string
		for range d.IntN(4) {
			args = append(args, "--"+d.name(table)+"="+d.scrap())
		}
		for range d.IntN(3) {
			env = append(env, setting{name: d.name(table)}.env()+"="+d.scrap())
		}
		if d.IntN(2) == 0 {
			args = append(args, "--config="+file)
		}
		for _, f := range []string{file, file + ".d/a.yaml"} {
			if err := os.WriteFile(f, []byte(d.file(table)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if check(t, role, args, env) {
			good++
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %s", took)
	}
	t.Logf("%d of 1000 were good", good)
}

// check resolves, and holds what must be true of every outcome. It reports whether the configuration was good.
func check(t *testing.T, role Role, args, env []string) bool {
	t.Helper()
	cfg, _, err := resolve(role, args, env, edge(), nil)
	if err != nil {
		if strings.TrimSpace(err.Error()) == "" {
			t.Errorf("an error without words for %q %q", args, env)
		}
		return false
	}
	data, err := json.Marshal(cfg)
	if err != nil {
		t.Fatalf("%q %q: %v", args, env, err)
	}
	var back Config
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatalf("%q %q: %v", args, env, err)
	}
	again, err := json.Marshal(back)
	if err != nil || !reflect.DeepEqual(data, again) {
		t.Errorf("%q %q: the configuration changes on its way to the child processes:\n%s\n%s", args, env, data, again)
	}
	if !cfg.Node.IPs[0].IsValid() || cfg.Node.Name == "" || role == Server && (len(cfg.Network.DNS) != len(cfg.Network.ClusterCIDRs) || !cfg.API.Advertise.IsValid()) {
		t.Errorf("%q %q: incomplete: %s", args, env, data)
	}
	return true
}

func FuzzResolve(f *testing.F) {
	f.Add("node-name: a\n", "--tls-san=b", "CORACLE_NODE_IP=10.0.0.1")
	f.Add("cluster-cidr: [10.42.0.0/16, \"fd42::/56\"]\nservice-cidr+: fd43::/112\n", "--disable=dns", "CORACLE_DEBUG=1")
	f.Add("a: &a [*a]\n", "--kubelet-arg", "CORACLE_X=1")
	f.Fuzz(func(t *testing.T, file, arg, env string) {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Skip(err)
		}
		args := []string{"--config=" + path}
		if arg != "" && !strings.HasPrefix(arg, "-h") && !strings.HasPrefix(arg, "--h") {
			args = append(args, arg)
		}
		for _, role := range []Role{Server, Agent} {
			check(t, role, args, []string{env})
		}
	})
}
