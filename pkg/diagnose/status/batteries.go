package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// batteries names the services that run, and those that are switched off.
func (w *writer) batteries(all []Battery) {
	var on, off []string
	for _, b := range all {
		if b.On {
			on = append(on, b.Name)
		} else {
			off = append(off, b.Name)
		}
	}
	if len(on) > 0 {
		w.field("Batteries", strings.Join(on, ", "))
	}
	if len(off) > 0 {
		w.field("Left out", strings.Join(off, ", "))
	}
}

// metrics tells of nodes without figures only: that there are some is what everybody expects.
func (w *writer) metrics(raw json.RawMessage) {
	var m state.Metrics
	if !told(raw, &m) {
		return
	}
	name := "Metrics"
	for _, node := range slices.Sorted(maps.Keys(m.Failed)) {
		w.field(name, fmt.Sprintf("none of %s: %s", node, m.Failed[node]))
		name = ""
	}
}

func (w *writer) charts(raw json.RawMessage) {
	var all []state.Chart
	if !told(raw, &all) {
		return
	}
	name := "Charts"
	for _, c := range all {
		w.field(name, c.Name+": "+c.Problem)
		name = ""
	}
}

func (w *writer) loadBalancers(raw json.RawMessage) {
	var all []state.LoadBalancer
	if !told(raw, &all) || len(all) == 0 {
		return
	}
	served := 0
	for _, l := range all {
		if len(l.Addresses) > 0 {
			served++
		}
	}
	w.field("LoadBalancer", fmt.Sprintf("%d of %d Services have addresses", served, len(all)))
	for _, l := range all {
		if l.Problem != "" {
			w.field("", l.Service+": "+l.Problem)
		}
	}
}

func (w *writer) volumes(raw json.RawMessage) {
	var v state.LocalVolumes
	if !told(raw, &v) || v.Volumes == 0 && len(v.Left) == 0 {
		return
	}
	w.field("Volumes", fmt.Sprintf("%d on this node", v.Volumes))
	for _, dir := range slices.Sorted(maps.Keys(v.Quota)) {
		w.field("", fmt.Sprintf("sizes in %s: %s", dir, v.Quota[dir]))
	}
	for _, folder := range v.Left {
		w.field("", folder+" is of a volume that the cluster does not know any more")
	}
}

func (w *writer) policies(raw json.RawMessage) {
	var p state.NetworkPolicy
	if !told(raw, &p) || p.Policies == 0 && p.Problem == "" {
		return
	}
	text := fmt.Sprintf("%d, for %d pods of this node", p.Policies, p.IsolatedPods)
	if p.Problem != "" {
		text = "NOT IN FORCE: " + p.Problem
	}
	w.field("Policies", text)
}

// registries tells of a file that cannot be used.
func (w *writer) registries(raw json.RawMessage) {
	var r state.Registries
	if told(raw, &r) && r.Error != "" {
		w.field("Registries", "still by what "+r.File+" said before: "+r.Error)
	}
}
