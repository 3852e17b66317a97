package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/front/command"
)

// completed is what a shell is offered for the last of words.
func completed(t *testing.T, words ...string) (offers []string, directive string) {
	t.Helper()
	args := append([]string{"__completeNoDesc"}, words...)
	c := root(args)
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&bytes.Buffer{})
	if err := command.Execute(c, args); err != nil {
		t.Fatalf("%q: %v", words, err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

// TestCompletionKnowsAll: every command and every flag that has a page is offered.
func TestCompletionKnowsAll(t *testing.T) {
	for _, p := range below(root(nil)) {
		words := strings.Fields(p.CommandPath())[1:]
		t.Run(strings.Join(words, " "), func(t *testing.T) {
			if offers, _ := completed(t, words...); !slices.Contains(offers, words[len(words)-1]) {
				t.Errorf("it is not offered itself, but %q", offers)
			}
			offers, _ := completed(t, append(words, "--")...)
			for _, g := range flagGroups(p) {
				for _, f := range g.flags {
					if !slices.Contains(offers, "--"+f.Name) {
						t.Errorf("--%s is not offered", f.Name)
					}
				}
			}
		})
	}
}

// topCommands are the commands in the order of help.
func topCommands() (names []string) {
	for _, c := range root(nil).Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return names
}

// TestCompletionOfValues: what is offered after a flag or for an argument. Directive :4 keeps shells from offering files.
func TestCompletionOfValues(t *testing.T) {
	const files, none, dirs = ":0", ":4", ":16"
	for _, c := range []struct {
		words, offers, directive string
	}{
		{"wait --for ", "api node dns", none},
		{"logs --level ", "error warn info debug", none},
		{"logs --since ", "", none},
		{"up --servers ", "1 3 5", none},
		{"up node ", "stop start", none},
		{"up --image ", "", files},
		{"run --artifacts ", "", dirs},
		{"upgrade ", "", files},
		{"install --bin-dir ", "", dirs},
		{"check ", "cis server agent", none},
		{"check -o ", "text json", none},
		{"support-bundle ", "", none},
		{"support-bundle --output ", "gz", ":8"},
		{"man token ", "create list delete rotate join-command", none},
		{"server --flannel-backend ", "vxlan host-gw wireguard-native none", none},
		{"server --data-dir ", "", dirs},
		{"version -o ", "json yaml", none},
		{"help ", "exit-codes " + strings.Join(topCommands(), " "), none},
		{"agent --config ", "", files},
		{"server --log-format ", "text json", none},
		{"server --node-ip ", "", none},
		{"images import ", "", files},
		{"images prune ", "", none},
		{"images load --clusters-dir ", "", dirs},
		{"config --role ", "server agent", none},
	} {
		offers, directive := completed(t, strings.Split(c.words, " ")...)
		if got := strings.Join(offers, " "); got != c.offers || directive != c.directive {
			t.Errorf("%q: %q %s, want %q %s", c.words, got, directive, c.offers, c.directive)
		}
	}
}
