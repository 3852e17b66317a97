package overlay

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

const untrimmed = `package a

import (
	"context"
	"fmt"
	"heavy.example/authority"
	cmd "heavy.example/commands/v2"
)

func init() {
	Register(Kept{})
	Register(Issuer{})
	cmd.Add(cmd.Command{Name: "a"})
}

// Kept stays.
type Kept struct{}

func (Kept) Run(context.Context) { fmt.Println() }

func (Kept) Parse(c cmd.Command) error { return nil }

type Issuer struct{ of authority.CA }

func (i *Issuer) Sign() error { return i.of.Sign() }

var _ cmd.Parser = (*Kept)(nil)

var (
	_    fmt.Stringer = (*Kept)(nil)
	name              = "a"
)
`

// TestTrim: what is left out is gone with its imports, and the rest is upstream's, line by line.
func TestTrim(t *testing.T) {
	var out trim
	out.packages, out.functions, out.types = []string{"p"}, []string{"Parse"}, []string{"Issuer"}
	out.files, out.calls = []string{"p/whole.go"}, []string{"Add(*)", "Register(Issuer)"}
	sources := map[string][]byte{
		"p/a.go":     []byte(strings.ReplaceAll(untrimmed, "	Register(", "	p.Register(")),
		"q/a.go":     []byte(untrimmed),
		"p/whole.go": []byte("package a\n"),
	}
	if err := out.leaveOut(sources); err != nil {
		t.Fatal(err)
	}
	got := string(sources["p/a.go"])
	if _, err := parser.ParseFile(token.NewFileSet(), "a.go", got, 0); err != nil {
		t.Fatalf("%v:\n%s", err, got)
	}
	for _, gone := range []string{"heavy.example", "cmd.", "Issuer", "Parse", "Stringer"} {
		if strings.Contains(got, gone) {
			t.Errorf("%s is left:\n%s", gone, got)
		}
	}
	for _, kept := range []string{`"context"`, `"fmt"`, "p.Register(Kept{})", "func (Kept) Run(context.Context) { fmt.Println() }", `name              = "a"`} {
		if !strings.Contains(got, kept) {
			t.Errorf("%s is gone:\n%s", kept, got)
		}
	}
	if n := strings.Count(got, "\n"); n != strings.Count(untrimmed, "\n") {
		t.Errorf("%d lines", n)
	}
	if sources["p/whole.go"] != nil || string(sources["q/a.go"]) != untrimmed {
		t.Error("a file that is left out is there, or another package was changed")
	}
}

// TestTrimNothing: what upstream does not have any more is an error that names it.
func TestTrimNothing(t *testing.T) {
	for name, out := range map[string]trim{
		"Gone":     {functions: []string{"Gone"}},
		"Type":     {types: []string{"Type"}},
		"Call(*)":  {calls: []string{"Call(*)"}},
		"gone.go":  {files: []string{"p/gone.go"}},
		"Kept.Any": {functions: []string{"Kept.Any"}},
	} {
		out.packages = []string{"p"}
		if err := out.leaveOut(map[string][]byte{"p/a.go": []byte(untrimmed)}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
