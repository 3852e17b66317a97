package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
)

func TestAddons(t *testing.T) {
	example := func(by state.Reporter) addon.Addon {
		return addon.Addon{Name: "example", About: "examples",
			Unsupported: func(cfg config.Config) string {
				if cfg.Network.Backend == config.BackendNone {
					return "there is no pod network"
				}
				return ""
			},
			Report: state.NewReport("examples", by, "Examples", nil, func(all []string) (problems []state.Problem, fine string) {
				for _, text := range all {
					problems = append(problems, state.Problem{Text: text, Fix: "mend it", Fails: text == "broken"})
				}
				return problems, "no example is broken"
			})}
	}
	several := config.Config{Role: config.Server}
	several.Join.Joined = true
	for name, tt := range map[string]struct {
		by      state.Reporter
		config  config.Config
		report  string // "" is none
		result  check.Result
		finding string
	}{
		"well":                 {report: `[]`, result: check.OK, finding: "no example is broken"},
		"a warning":            {report: `["odd"]`, result: check.Warn, finding: "odd"},
		"a failure":            {report: `["broken"]`, result: check.Fail, finding: "broken"},
		"another form":         {report: `{"a":1}`, result: check.OK, finding: "no example"},
		"no report":            {config: several, result: check.OK, finding: "no example"},
		"no report of one":     {by: state.LeadingServer, config: config.Config{Role: config.Server}, result: check.OK, finding: "no example"},
		"another server leads": {by: state.LeadingServer, config: several, result: check.Skipped, finding: "the leading server"},
		"this server leads":    {by: state.LeadingServer, config: several, report: `["odd"]`, result: check.Warn, finding: "odd"},
		"disabled":             {config: config.Config{Disable: []string{"example"}}, report: `["broken"]`, result: check.Skipped, finding: "disabled"},
		"unsupported":          {config: config.Config{Network: config.Network{Backend: config.BackendNone}}, result: check.Skipped, finding: "no pod network"},
	} {
		t.Run(name, func(t *testing.T) {
			p := processes{}
			if tt.report != "" {
				p.children = map[string]state.Process{state.Node: {Details: map[string]json.RawMessage{"examples": json.RawMessage(tt.report)}}}
			}
			d := &Doctor{Config: tt.config, processes: func() processes { return p }}
			got := d.addon(example(tt.by))
			if len(got) != 1 || got[0].Result != tt.result || !strings.Contains(got[0].Finding, tt.finding) {
				t.Errorf("%+v, want one that is %s: %s", got, tt.result, tt.finding)
			}
		})
	}

	t.Run("rows", func(t *testing.T) {
		rows := addonRows([]addon.Addon{example(state.EachNode), {Name: "without a probe"}, example(state.EachServer), example(state.LeadingServer)})
		var got []string
		for _, r := range rows {
			got = append(got, fmt.Sprint(r.name, " ", r.needs))
		}
		want := []string{fmt.Sprint("example ", aRun), fmt.Sprint("example ", aServer), fmt.Sprint("example ", aServer)}
		if !slices.Equal(got, want) {
			t.Errorf("rows are %q, want %q", got, want)
		}
	})
	t.Run("many problems", func(t *testing.T) {
		all, _ := json.Marshal(make([]string, 25))
		p := processes{children: map[string]state.Process{state.Node: {Details: map[string]json.RawMessage{"examples": all}}}}
		d := &Doctor{processes: func() processes { return p }}
		if got := d.addon(example(state.EachNode)); len(got) != 11 || !strings.Contains(got[10].Finding, "and 15 more") {
			t.Errorf("%d findings, the last is %+v", len(got), got[len(got)-1])
		}
	})
}
