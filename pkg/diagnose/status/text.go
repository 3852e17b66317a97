package status

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/quantity"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Text writes the report as text. Ages are relative to now; reports describe details of add-ons.
func (r Report) Text(out io.Writer, now time.Time, reports []state.Report) error {
	w := &writer{out: out, now: now}
	w.line("%s", strings.TrimSpace("coracle "+r.Version))
	w.field("Health", r.headline(w))
	for _, reason := range r.Reasons {
		w.field("", reason)
	}
	if r.Node != nil {
		w.field("Node", r.Node.text())
		w.field("Addresses", strings.Join(r.Node.Addresses, ", "))
		if u := r.Node.Usage; u != nil {
			w.field("Usage", u.text())
		}
	}
	if f := r.LastFailure; f != nil {
		w.field("Last failure", fmt.Sprintf("%s %s%s", f.Process, f.Reason, w.ago(f.Time)))
	}
	if u := r.Upgrade; u != nil {
		w.field("Upgrade", u.Text()+w.ago(u.Ended))
	}
	if b := r.Backup; b != nil {
		w.field("Backup", b.Text()+w.ago(b.Time))
	}
	w.certificates(r.Certificates)
	w.addons(r.Addons)
	w.details(r.Details, reports)
	w.field("Data", r.Data.text())
	if len(r.Processes) > 0 {
		w.processes(r.Processes)
		w.components(r.Processes)
	}
	return w.err
}

// headline is the health and since when.
func (r Report) headline(w *writer) string {
	switch r.Health {
	case Stopped:
		return "not running; start it with 'coracle server' or 'coracle agent'"
	case Ready:
		return "ready for " + w.age(r.Since)
	}
	if r.Since.IsZero() {
		return string(r.Health)
	}
	return string(r.Health) + ", started " + w.age(r.Since) + " ago"
}

func (n Node) text() string {
	ready := "Ready"
	if !n.Ready {
		ready = "NotReady"
	}
	if n.Cordoned {
		ready += ",SchedulingDisabled"
	}
	return fmt.Sprintf("%s, %s, %s", n.Name, ready, n.Version)
}

func (u Usage) text() string {
	percent := func(part, whole int64) string {
		if whole == 0 {
			return "?"
		}
		return fmt.Sprintf("%d %%", part*100/whole)
	}
	return fmt.Sprintf("%.2f of %g CPUs (%s), %s of %s memory (%s)", float64(u.MilliCPU)/1000, float64(u.MilliCPUs)/1000,
		percent(u.MilliCPU, u.MilliCPUs), quantity.Bytes(u.Memory), quantity.Bytes(u.Allocatable), percent(u.Memory, u.Allocatable))
}

func (d Data) text() string {
	if d.Size == 0 {
		return d.Path
	}
	return fmt.Sprintf("%s, %s", d.Path, quantity.Bytes(d.Size))
}

// writer keeps the first error, so that a page can be written without a check of each line.
type writer struct {
	out io.Writer
	now time.Time
	err error
}

func (w *writer) line(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.out, format+"\n", args...)
	}
}

func (w *writer) field(name, value string) {
	if name != "" {
		name += ":"
	}
	w.line("%s", strings.TrimRight(fmt.Sprintf("%-14s%s", name, value), " "))
}

func (w *writer) age(t time.Time) string { return duration.HumanDuration(w.now.Sub(t)) }

func (w *writer) ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", " + w.age(t) + " ago"
}

// certificates writes the certificate that expires first, and each that has expired or cannot be read.
func (w *writer) certificates(all []pki.Expiry) {
	var first *pki.Expiry
	var bad []string
	for i, c := range all {
		switch {
		case c.Error != "":
			bad = append(bad, fmt.Sprintf("%s: %s", c.Name, c.Error))
			continue
		case w.now.After(c.NotAfter):
			bad = append(bad, fmt.Sprintf("%s expired %s ago (%s)", c.Name, w.age(c.NotAfter), c.File))
			continue
		}
		if first == nil || c.NotAfter.Before(first.NotAfter) {
			first = &all[i]
		}
	}
	if first != nil {
		text := fmt.Sprintf("%d, the first to expire is %s on %s", len(all), first.Name, first.NotAfter.Format(time.DateOnly))
		if !first.RenewAt.IsZero() {
			text += ", renewed from " + first.RenewAt.Format(time.DateOnly)
		}
		w.field("Certificates", text)
	}
	for _, text := range bad {
		w.field("Certificate", text)
	}
}

func (w *writer) components(all []Process) {
	w.line("")
	tab := w.table()
	fmt.Fprintln(tab, "COMPONENT\tPROCESS\tSTATE\tREADY IN\tAGE\tNOTE")
	for _, p := range all {
		for _, u := range p.Components {
			took, age := "-", "-"
			if !u.Ready.IsZero() {
				age = w.age(u.Ready)
				if !u.Standby.After(u.Started) { // otherwise the time includes waiting
					took = quantity.Seconds(u.Ready.Sub(u.Started))
				}
			}
			fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t%s\n", u.Name, p.Name, u.State, took, age, note(u))
		}
	}
	w.flush(tab)
}

// table is a tabwriter that removes blanks at the ends of lines, because the last column may be empty.
type table struct {
	*tabwriter.Writer
	page *bytes.Buffer
}

func (w *writer) table() table {
	page := new(bytes.Buffer)
	return table{tabwriter.NewWriter(page, 0, 0, 3, ' ', 0), page}
}

func (w *writer) flush(t table) {
	_ = t.Flush() // into memory
	for line := range strings.Lines(t.page.String()) {
		w.line("%s", strings.TrimRight(line, " \n"))
	}
}

func note(u lifecycle.Status) string {
	switch {
	case u.Error != "":
		return u.Error
	case u.State == lifecycle.Standby && u.Waiting != "":
		return u.Waiting
	case u.Waiting != "":
		return "waits for " + u.Waiting
	case u.State == lifecycle.Waiting, u.State == lifecycle.Standby:
		return "needs " + strings.Join(u.Needs, ", ")
	}
	return ""
}
