package doctor

import (
	"context"
	"encoding/json"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
)

// addonRows returns the probes of add-ons. Each judges the report of the add-on about its own work.
func addonRows(addons []addon.Addon) (rows []row) {
	for _, a := range addons {
		if a.Report.Judge == nil {
			continue
		}
		needs := aServer
		if a.Report.Reporter == state.EachNode {
			needs = aRun
		}
		rows = append(rows, row{name: a.Name, about: a.About, needs: needs, run: func(d *Doctor, _ context.Context) []check.Verdict { return d.addon(a) }})
	}
	return rows
}

func (d *Doctor) addon(a addon.Addon) (out []check.Verdict) {
	if d.Config.Disabled(a.Name) {
		return check.Skipf("it is disabled, by --disable")
	}
	if a.Unsupported != nil {
		if why := a.Unsupported(d.Config); why != "" {
			return check.Skipf("%s", why)
		}
	}
	var report json.RawMessage
	found := d.detail(a.Report.Key, &report)
	if !found && a.Report.Reporter == state.LeadingServer && d.Config.Role == config.Server && d.several() {
		return check.Skipf("only the leading server reports it: run coracle doctor there")
	}
	problems, fine := a.Report.Judge(report)
	for _, p := range problems {
		if p.Fails {
			out = append(out, check.Failf(p.Fix, "%s", p.Text)...)
		} else {
			out = append(out, check.Warnf(p.Fix, "%s", p.Text)...)
		}
	}
	return check.Else(first(out, 10), check.Okf("%s", fine))
}
