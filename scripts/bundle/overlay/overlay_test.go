package overlay

import (
	"strings"
	"testing"
)

func TestRename(t *testing.T) {
	const source = `// Comment about main.
package main

import "fmt"

type conf struct{ main string }

func main() { fmt.Println("main") }

func cmdAdd() { main := 1; _ = main }

func (conf) cmdDel() {}
`
	functions := map[string]bool{}
	got, err := rename("x.go", []byte(source), "bridge", functions)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(source, "package main", "package bridge", 1)
	want = strings.Replace(want, "func main()", "func Main()", 1)
	if string(got) != want {
		t.Errorf("got\n%s", got)
	}
	if !functions["cmdAdd"] || functions["cmdDel"] {
		t.Errorf("found functions %v; methods do not count", functions)
	}
}

func TestExported(t *testing.T) {
	if got := exported("crictl", map[string]bool{"main": true}); got != nil {
		t.Errorf("a command without verbs got\n%s", got)
	}
	got := string(exported("portmap", map[string]bool{"cmdAdd": true, "cmdDel": true}))
	for want, there := range map[string]bool{"package portmap": true, "return cmdAdd(args)": true, "func Del(": true, "func Check(": false} {
		if strings.Contains(got, want) != there {
			t.Errorf("%q: want %v in\n%s", want, there, got)
		}
	}
}
