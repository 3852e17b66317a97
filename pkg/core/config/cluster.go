package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// ClusterSettings are the settings that the machines of a cluster share, by flag name, in the form of flag values; for files, their
// content. The first server sets them; machines that join take them from the cluster.
type ClusterSettings map[string]string

// scope is the set of machines that share a setting.
type scope int

const (
	ownSetting         scope = iota // every machine has its own
	withAll                         // servers and agents share it
	withServers                     // servers share it
	contentWithServers              // servers share the content of the file
)

// Known is what a machine knows about its cluster.
type Known struct {
	Settings ClusterSettings `json:"settings"`
	Servers  []string        `json:"servers"` // HOST:PORT of every API
	// Joined says that the settings are shared with other machines; see Join.Joined.
	Joined bool `json:"joined"`
	// From is the URL of the server that has sent this, "" if it was stored at an earlier start. A stored setting does not override
	// the user's, unless it cannot be changed.
	From string `json:"-"`
}

// remembered reads what the machine knew about its cluster at the last start. It is empty if the machine has not joined a cluster, and if the
// file is damaged, which package join reports.
func (h host) remembered(role Role, d paths.Dirs) (k Known) {
	file := d.Cluster()
	if role == Server {
		file = d.ServerCluster()
	}
	data, err := h.readFile(file)
	if err != nil || json.Unmarshal(data, &k) != nil {
		return Known{}
	}
	if !k.Joined {
		return Known{}
	}
	return k
}

// inherit adds the cluster's settings, with lower precedence than the user's, and reports contradictions.
func (r raw) inherit(role Role, d paths.Dirs, known Known, p *problems) {
	for _, s := range r.table(Server) {
		if s.shared == ownSetting || role == Agent && s.shared != withAll {
			continue
		}
		theirs, ok := known.Settings[s.name]
		if !ok {
			continue // a server of another version does not know the setting
		}
		if s.collected.layer >= fromFile {
			if known.From == "" && s.heldBy == "" {
				continue
			}
			r.contradiction(s, theirs, known.From, p)
			continue
		}
		if s.shared == contentWithServers && theirs != "" {
			theirs = d.SharedFile(s.name)
		}
		s.collected.put(s.split(theirs, origin{fromCluster, "the cluster"}), fromCluster)
		if theirs == "" {
			s.collected.items = nil
		}
	}
}

// same reports whether a single value of the user's means the same as the cluster's, as 5m and 5m0s do.
func (s setting) same(theirs string) bool {
	if s.kind == list || s.kind == lines || s.field.decode == nil {
		return false
	}
	meaning := func(v *value) string {
		var cfg Config
		s.field.decode(&decoder{problems: &problems{}}, v, &cfg)
		return s.field.text(cfg)
	}
	return meaning(s.collected) == meaning(&value{setting: s, items: s.split(theirs, origin{})})
}

// contradiction reports a setting of the user that differs from the cluster's.
func (r raw) contradiction(s setting, theirs, from string, p *problems) {
	if from == "" {
		from = "which this machine remembers"
	} else {
		from = "as " + from + " says"
	}
	if s.shared == contentWithServers {
		path := s.collected.one().text
		if ours, err := os.ReadFile(path); path != "" && err == nil && strings.TrimSpace(string(ours)) != strings.TrimSpace(theirs) {
			p.add("%s: %s differs from what the cluster has, %s: leave it out, and this server takes the cluster's", s.collected.label(), path, from)
		}
		return
	}
	ours, want := s.collected.texts(), (&value{setting: s, items: s.split(theirs, origin{})}).texts()
	if s.name == "disable" || s.shared == withServers && s.kind == list {
		slices.Sort(ours)
		slices.Sort(want)
	}
	if strings.Join(ours, ",") != strings.Join(want, ",") && !s.same(theirs) {
		p.add("%s is %s, but the cluster's is %s, %s: leave it out, and this machine takes the cluster's",
			s.collected.label(), orNothing(s.collected.String()), orNothing(theirs), from)
	}
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// Files returns the content, by path, of the files that a server has to write before it uses the settings. It may be secret.
func (cs ClusterSettings) Files(d paths.Dirs) map[string]string {
	out := map[string]string{}
	for _, s := range serverTable() {
		if text := cs[s.name]; s.shared == contentWithServers && text != "" {
			out[d.SharedFile(s.name)] = text
		}
	}
	return out
}

// ForAgents returns the settings that agents need. None of them is secret.
func (cs ClusterSettings) ForAgents() ClusterSettings {
	out := ClusterSettings{}
	for _, s := range allSettings() {
		if text, ok := cs[s.name]; ok && s.shared == withAll {
			out[s.name] = text
		}
	}
	return out
}

// Fixed returns the settings that cannot be changed once the cluster has data, each with the data that depends on it.
func Fixed() map[string]string {
	out := map[string]string{}
	for _, s := range serverTable() {
		if s.heldBy != "" {
			out[s.name] = s.heldBy
		}
	}
	return out
}

// Shared returns the settings of this server that the machines of its cluster share. It reads the files that some of them name.
func (c Config) Shared() (ClusterSettings, error) {
	out := ClusterSettings{}
	for _, s := range allSettings() {
		switch {
		case s.shared == ownSetting || s.field.text == nil || s.name == "datastore-prefix" && !c.Datastore.External():
		case s.shared == contentWithServers:
			text, err := s.content(c)
			if err != nil {
				return nil, err
			}
			out[s.name] = text
		default:
			out[s.name] = s.field.text(c)
		}
	}
	return out, nil
}

// content reads the file that a setting names. It is "" if the setting names none.
func (s setting) content(c Config) (string, error) {
	path := s.field.text(c)
	if path == "" {
		return "", nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("--%s: %s is gone, and servers that join need its content: put it back", s.name, path)
	}
	if err != nil {
		return "", fmt.Errorf("reading the file of --%s for others: %w", s.name, err)
	}
	return string(data), nil
}
