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

// ClusterSettings are the settings that all machines of a cluster share, by flag name, as one would type them; of
// files, the content. The first server decides them; everybody who joins takes them from the cluster.
type ClusterSettings map[string]string

// scope says which machines take a setting from the cluster.
type scope int

const (
	ownSetting         scope = iota // every machine has its own
	withAll                         // servers and agents share it
	withServers                     // servers share it
	contentWithServers              // servers share the content of the file
)

// Known is what a machine knows of the cluster that it is part of.
type Known struct {
	Settings ClusterSettings `json:"settings"`
	Servers  []string        `json:"servers"` // HOST:PORT of every API
	// Joined says that the settings are the cluster's and not only this machine's; see Join.Joined.
	Joined bool `json:"joined"`
	// From names the server that has just told this. Empty says that it is remembered: a setting that can be changed
	// then is what the user gives.
	From string `json:"-"`
}

// remembered reads what the machine knew of its cluster when it last ran. It is nothing for a machine that has not
// joined one, also for a damaged file: package join, which writes it, tells of that.
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

// inherit puts the cluster's settings below what the user gave, and reports what contradicts them.
func (r *raw) inherit(role Role, d paths.Dirs, known Known, p *problems) {
	for _, s := range r.serverAndNode() {
		if s.shared == ownSetting || role == Agent && s.shared != withAll {
			continue
		}
		if s.into.setting.name == "" { // no setting of this role's
			s.into.setting = s
			s.into.reset()
		}
		theirs, ok := known.Settings[s.name]
		if !ok {
			continue // a server of another version does not know the setting
		}
		if s.into.layer >= fromFile {
			if known.From == "" && s.heldBy == "" {
				continue
			}
			r.contradiction(s, theirs, known.From, p)
			continue
		}
		if s.shared == contentWithServers && theirs != "" {
			theirs = d.SharedFile(s.name)
		}
		s.into.put(s.split(theirs, origin{fromCluster, "the cluster"}), fromCluster)
		if theirs == "" {
			s.into.items = nil
		}
	}
}

// contradiction reports a given value that is not the cluster's.
func (r *raw) contradiction(s setting, theirs, from string, p *problems) {
	if from == "" {
		from = "which this machine remembers"
	} else {
		from = "as " + from + " says"
	}
	if s.shared == contentWithServers {
		path := s.into.one().text
		if ours, err := os.ReadFile(path); path != "" && err == nil && strings.TrimSpace(string(ours)) != strings.TrimSpace(theirs) {
			p.add("%s: %s differs from what the cluster has, %s: leave it out, and this server takes the cluster's", s.into.label(), path, from)
		}
		return
	}
	ours, want := s.into.texts(), (&value{setting: s, items: s.split(theirs, origin{})}).texts()
	if s.name == "disable" || s.shared == withServers && s.kind == list {
		slices.Sort(ours)
		slices.Sort(want)
	}
	if strings.Join(ours, ",") != strings.Join(want, ",") {
		p.add("%s is %s, but the cluster's is %s, %s: leave it out, and this machine takes the cluster's",
			s.into.label(), orNothing(s.into.String()), orNothing(theirs), from)
	}
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// serverAndNode lists all settings with their fields, whatever the role.
func (r *raw) serverAndNode() []setting { return r.bound(append(r.nodeTable(), r.serverTable()...)) }

// Files are the files that a server has to write before it uses the settings, by path. They may be secret.
func (cs ClusterSettings) Files(d paths.Dirs) map[string]string {
	out := map[string]string{}
	for _, s := range new(raw).serverTable() {
		if text := cs[s.name]; s.shared == contentWithServers && text != "" {
			out[d.SharedFile(s.name)] = text
		}
	}
	return out
}

// ForAgents are the settings that an agent needs: none that is secret.
func (cs ClusterSettings) ForAgents() ClusterSettings {
	out := ClusterSettings{}
	for _, s := range new(raw).serverAndNode() {
		if text, ok := cs[s.name]; ok && s.shared == withAll {
			out[s.name] = text
		}
	}
	return out
}

// Fixed are the settings that cannot change once there is a cluster, each with what in it depends on them.
func Fixed() map[string]string {
	out := map[string]string{}
	for _, s := range new(raw).serverTable() {
		if s.heldBy != "" {
			out[s.name] = s.heldBy
		}
	}
	return out
}

// Shared are the settings of this server that all machines of its cluster share. It reads the files that some of them
// name.
func (c Config) Shared() (ClusterSettings, error) {
	out := ClusterSettings{}
	for _, s := range new(raw).serverAndNode() {
		switch {
		case s.shared == ownSetting || s.to.text == nil || s.name == "datastore-prefix" && !c.Datastore.External():
		case s.shared == contentWithServers:
			text, err := s.content(c)
			if err != nil {
				return nil, err
			}
			out[s.name] = text
		default:
			out[s.name] = s.to.text(c)
		}
	}
	return out, nil
}

// content is the content of the file that a setting names, "" if it names none.
func (s setting) content(c Config) (string, error) {
	path := s.to.text(c)
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
