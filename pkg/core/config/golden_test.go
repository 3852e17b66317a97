package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/golden"
)

// edge is a host with everything that defaults ask for.
func edge() host {
	return host{
		hostname: func() (string, error) { return "Edge-1", nil },
		source: func(v6 bool) netip.Addr {
			if v6 {
				return netip.MustParseAddr("2001:db8::7")
			}
			return netip.MustParseAddr("198.51.100.7")
		},
		addrs: func() []netip.Addr { return nil },
		readFile: func(name string) ([]byte, error) {
			if strings.HasPrefix(name, "/etc/") || strings.HasPrefix(name, "/run/") || strings.HasPrefix(name, "/var/") {
				return nil, fs.ErrNotExist // what the machine has that tests run on must not matter
			}
			return os.ReadFile(name)
		},
		readDir: func(name string) ([]os.DirEntry, error) {
			if strings.HasPrefix(name, "/etc/") {
				return nil, fs.ErrNotExist
			}
			return os.ReadDir(name)
		},
	}
}

// roleOf is the role that a test file is for: files named agent-* are for agents.
func roleOf(file string) Role {
	if strings.HasPrefix(filepath.Base(file), "agent-") {
		return Agent
	}
	return Server
}

func TestGoodFiles(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.good.yaml")
	if len(files) < 5 {
		t.Fatalf("only %d files", len(files))
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			cfg, _, err := resolve(roleOf(file), []string{"--config", file}, nil, edge(), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(cfg, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			here, _ := os.Getwd()
			golden.Check(t, strings.TrimSuffix(file, ".good.yaml")+".golden.json", strings.ReplaceAll(string(got), here, "HERE")+"\n")
		})
	}
}

func TestBadFiles(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.bad.yaml")
	if len(files) < 10 {
		t.Fatalf("only %d files", len(files))
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			_, _, err := resolve(roleOf(file), []string{"--config", file}, nil, edge(), nil)
			if err == nil {
				t.Fatal("no mistake was found")
			}
			here, _ := os.Getwd()
			golden.Check(t, strings.TrimSuffix(file, ".bad.yaml")+".golden.txt", strings.ReplaceAll(err.Error(), here, "HERE")+"\n")
		})
	}
}

// TestFlagList keeps names, variables and defaults from changing unseen: people's files depend on them.
func TestFlagList(t *testing.T) {
	for _, role := range []Role{Server, Agent} {
		r := newRaw()
		var b strings.Builder
		for _, s := range r.table(role) {
			fmt.Fprintf(&b, "--%s %s\n  env     %s\n  default %s\n  help    %s\n", s.name, s.arg, s.env(), s.def+s.note, s.help)
		}
		golden.Check(t, "testdata/flags-"+string(role)+".golden.txt", b.String())
	}
}

func TestUsage(t *testing.T) {
	golden.Check(t, "testdata/usage-server.golden.txt", Usage(Server))
	golden.Check(t, "testdata/usage-agent.golden.txt", Usage(Agent))
}

// TestTable holds the table against its own rules.
func TestTable(t *testing.T) {
	for _, role := range []Role{Server, Agent} {
		r := newRaw()
		names, shorts, values := map[string]bool{}, map[string]bool{}, map[*value]bool{}
		for _, s := range r.table(role) {
			if names[s.name] || s.short != "" && shorts[s.short] || values[s.collected] {
				t.Errorf("%s is there twice, or shares its letter or its field", s.name)
			}
			names[s.name], shorts[s.short], values[s.collected] = true, true, true
			if s.name != strings.ToLower(s.name) || strings.Contains(s.name, "_") {
				t.Errorf("%s is not spelt like a flag", s.name)
			}
			if s.def != "" && s.note != "" {
				t.Errorf("%s has two defaults", s.name)
			}
			if s.help == "" || strings.HasSuffix(s.help, ".") || s.group == "" || (s.arg == "") != (s.kind == toggle) {
				t.Errorf("%s lacks help, group or the name of its value", s.name)
			}
			if s.def != "" && s.kind == text {
				if it := s.split(s.def, origin{}); len(it) != 1 {
					t.Errorf("%s has no default of its kind", s.name)
				}
			}
		}
	}
}

// TestReference writes docs/configuration.md out of the table.
func TestReference(t *testing.T) {
	golden.Check(t, "../../../docs/configuration.md", reference(t))
}

func reference(t *testing.T) string {
	t.Helper()
	head, err := os.ReadFile("testdata/reference.md")
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatal("testdata/reference.md, the text before the tables, is missing")
	}
	var b strings.Builder
	b.Write(head)
	sections := []struct {
		title string
		table []setting
	}{{"Servers and agents", nodeTable()}, {"Servers only", serverTable()}}
	for _, section := range sections {
		fmt.Fprintf(&b, "\n## %s\n", section.title)
		for _, group := range groups {
			rows := ""
			for _, s := range section.table {
				if s.group == group {
					rows += fmt.Sprintf("| `%s` | %s | %s |\n", s.name, referenceDefault(s), referenceText(s))
				}
			}
			if rows != "" {
				fmt.Fprintf(&b, "\n### %s\n\n| key | default | meaning |\n| --- | --- | --- |\n%s", group, rows)
			}
		}
	}
	return b.String()
}

func referenceDefault(s setting) string {
	switch {
	case s.note != "":
		return s.note
	case s.def != "":
		return "`" + s.def + "`"
	}
	return ""
}

func referenceText(s setting) string {
	out := strings.TrimSuffix(s.help, ".") + "."
	if s.arg != "" {
		out += " `" + strings.ReplaceAll(s.arg, "|", "\\|") + "`"
	}
	if s.many() {
		out += ", may be a list"
	}
	if s.short != "" {
		out += "; short flag `-" + s.short + "`"
	}
	switch s.shared {
	case withAll:
		out = strings.TrimSuffix(out, ".") + "; from the cluster"
	case withServers, contentWithServers:
		out = strings.TrimSuffix(out, ".") + "; servers have it from the cluster"
	}
	return out
}
