package status

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/tcpbalancer"
)

// details sums up the components' reports of their own work, and lists all problems.
func (w *writer) details(all map[string]json.RawMessage, reports []state.Report) {
	w.etcd(all[state.EtcdDetail])
	w.manifests(all[state.ManifestsDetail])
	w.servers(all[state.BalancerDetail])
	w.tunnels(all[state.TunnelsDetail])
	w.archives(all["images"])
	for _, r := range reports {
		w.fields(r.Title, r.Lines(all[r.Key]))
	}
}

// fields writes lines with a name before the first of them.
func (w *writer) fields(name string, lines []string) {
	for _, line := range lines {
		w.field(name, line)
		name = ""
	}
}

// addons names the add-ons that are enabled, and those that are disabled.
func (w *writer) addons(all []Addon) {
	var on, off []string
	for _, a := range all {
		if a.On {
			on = append(on, a.Name)
		} else {
			off = append(off, a.Name)
		}
	}
	if len(on) > 0 {
		w.field("Add-ons", strings.Join(on, ", "))
	}
	if len(off) > 0 {
		w.field("Disabled", strings.Join(off, ", "))
	}
}

// decode reads a component's report. It returns false if there is none, or if it is of another version.
func decode(raw json.RawMessage, into any) bool {
	return raw != nil && json.Unmarshal(raw, into) == nil
}

func (w *writer) etcd(raw json.RawMessage) {
	var alarms []state.EtcdAlarm
	if !decode(raw, &alarms) {
		return
	}
	for _, a := range alarms {
		w.field("Etcd", fmt.Sprintf("ALARM %s of %s: %s", a.Kind, a.Member, a.Advice))
	}
}

func (w *writer) manifests(raw json.RawMessage) {
	var all []state.Manifest
	if !decode(raw, &all) || len(all) == 0 {
		return
	}
	counts := map[state.ManifestState]int{}
	for _, m := range all {
		counts[m.State]++
	}
	var parts []string
	for _, s := range []state.ManifestState{state.ManifestApplied, state.ManifestPending, state.ManifestFailed, state.ManifestSkipped} {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	w.field("Manifests", strings.Join(parts, ", "))
	for _, m := range all {
		if m.State != state.ManifestApplied {
			w.field("", strings.TrimSuffix(fmt.Sprintf("%s is %s: %s", m.File, m.State, m.Error), ": "))
		}
	}
}

// servers writes the API servers that the node uses, unless this machine's own is the only one.
func (w *writer) servers(raw json.RawMessage) {
	var all []tcpbalancer.Server
	if !decode(raw, &all) || len(all) == 1 && all[0].Own {
		return
	}
	name := "API servers"
	for _, s := range all {
		if s.Fallback && s.Connections == 0 {
			continue
		}
		text := s.Address
		if s.Own {
			text += ", this machine's"
		}
		if s.Connections > 0 {
			text += ", in use"
		}
		if s.Problem != "" {
			text += fmt.Sprintf(", failing for %s: %s", w.age(s.Since), s.Problem)
		}
		w.field(name, text)
		name = ""
	}
}

// tunnels writes the servers to which the node has tunnels.
func (w *writer) tunnels(raw json.RawMessage) {
	var all []state.Tunnel
	if !decode(raw, &all) {
		return
	}
	name := "Tunnels"
	for _, t := range all {
		text := fmt.Sprintf("to %s for %s", t.Server, w.age(t.Since))
		if t.Error != "" {
			text = fmt.Sprintf("none to %s: %s", t.Server, t.Error)
		}
		w.field(name, text)
		name = ""
	}
}

// archives writes the image archives that could not be imported.
func (w *writer) archives(raw json.RawMessage) {
	var all []struct {
		File  string `json:"file"`
		Error string `json:"error"`
	}
	if !decode(raw, &all) {
		return
	}
	for _, a := range all {
		if a.Error != "" {
			w.field("Images", a.Error)
		}
	}
}
