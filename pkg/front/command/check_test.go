package command

import (
	"reflect"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

func TestParseCheck(t *testing.T) {
	tests := []struct {
		args []string
		want checkArgs
	}{
		{nil, checkArgs{role: config.Server, format: "text"}},
		{[]string{"agent", "-o", "json", "--server", "https://a:1"}, checkArgs{role: config.Agent, named: true, format: "json", rest: []string{"--server", "https://a:1"}}},
		{[]string{"--only=a,b", "--only", "c", "--data-dir", "/x"}, checkArgs{role: config.Server, format: "text", only: []string{"a", "b", "c"}, rest: []string{"--data-dir", "/x"}}},
		{[]string{"server", "-h"}, checkArgs{role: config.Server, named: true, format: "text", help: true}},
	}
	for _, tt := range tests {
		got, err := parseCheck(tt.args)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: %+v, %v", tt.args, got, err)
		}
	}
	for _, wrong := range [][]string{{"-o"}, {"--only"}, {"-o", "xml"}} {
		if _, err := parseCheck(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestCheckMachine(t *testing.T) {
	dirs := []string{"--data-dir=" + t.TempDir(), "--run-dir=" + t.TempDir()}
	m, err := checkArgs{role: config.Agent, rest: dirs}.machine(nil)
	if err != nil || m.Config.Join.Server != "" || m.Config.Role != config.Agent || m.Running {
		t.Errorf("an agent whose server is not known yet: %+v, %v", m, err)
	}
	if _, err := (checkArgs{role: config.Agent, rest: []string{"--cluster-cidr=x"}}).machine(nil); err == nil {
		t.Error("a mistake is taken")
	}
	m, err = checkArgs{role: config.Agent, rest: append(dirs, "--server=https://a:1", "--token=x")}.machine(nil)
	if err != nil || m.Config.Join.Server != "https://a:1" {
		t.Errorf("%+v, %v", m, err)
	}
}
