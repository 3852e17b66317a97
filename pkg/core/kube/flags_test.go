package kube

import (
	"strings"
	"testing"

	cliflag "k8s.io/component-base/cli/flag"
)

func TestOverride(t *testing.T) {
	ours := Flags{{"a", "1"}, {"list", "x"}, {"switch", "false"}}
	for name, c := range map[string]struct {
		user []string
		want string
	}{
		"nothing":          {nil, "--a=1\n--list=x\n--switch=false\n"},
		"replaces":         {[]string{"a=2"}, "--list=x\n--switch=false\n--a=2\n"},
		"adds":             {[]string{"b=3"}, "--a=1\n--list=x\n--switch=false\n--b=3\n"},
		"repeats":          {[]string{"list=y", "list=z"}, "--a=1\n--switch=false\n--list=y\n--list=z\n"},
		"lone name":        {[]string{"switch"}, "--a=1\n--list=x\n--switch=true\n"},
		"dashes":           {[]string{"--a=2"}, "--list=x\n--switch=false\n--a=2\n"},
		"underscores":      {[]string{"a_b=2"}, "--a=1\n--list=x\n--switch=false\n--a-b=2\n"},
		"value with equal": {[]string{"a=b=c"}, "--list=x\n--switch=false\n--a=b=c\n"},
		"empty value":      {[]string{"a="}, "--list=x\n--switch=false\n--a=\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ours.Override(c.user).String(); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
	if got := ours.String(); got != "--a=1\n--list=x\n--switch=false\n" {
		t.Errorf("Override changed its receiver: %s", got)
	}
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		flags Flags
		err   string
	}{
		"good":    {Flags{{"number", "7"}}, ""},
		"unknown": {Flags{{"numbr", "7"}}, `kube-x has no flag "numbr": correct or remove --kube-x-arg numbr=7`},
		"bad":     {Flags{{"number", "seven"}}, "setting --kube-x-arg number=seven: "},
	} {
		t.Run(name, func(t *testing.T) {
			var sets cliflag.NamedFlagSets
			n := sets.FlagSet("some").Int("number", 1, "")
			err := c.flags.Parse("kube-x", sets)
			if c.err == "" && (err != nil || *n != 7) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %v and %d, want %q", err, *n, c.err)
			}
		})
	}
}
