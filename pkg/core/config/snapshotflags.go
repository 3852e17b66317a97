package config

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// SnapshotFlags adds the settings of copies to a command's flags, also by the short names that k3s's commands have. The function that is returned gives
// them as the flags say, or the environment and the configuration file, or else the last start here, whose configuration is running.
func SnapshotFlags(set *pflag.FlagSet) func(environ []string, running Config) (Snapshots, error) {
	r, table := newRaw(), snapshotTable()
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		switch {
		case name == "s3" || strings.HasPrefix(name, "s3-"):
			name = "etcd-" + name
		case name == "dir", name == "name":
			name = "etcd-snapshot-" + name
		}
		return pflag.NormalizedName(name)
	})
	for i, s := range table {
		table[i].collected = r[s.name]
	}
	addFlags(set, slices.DeleteFunc(slices.Clone(table), func(s setting) bool { return scheduling(s.name) }))
	return func(environ []string, running Config) (Snapshots, error) {
		var p problems
		all := r.table(Server)
		r.readOthers(Server, all, environ, thisHost(), &p)
		d := &decoder{problems: &p, host: thisHost(), role: Server}
		known := running.Dirs.Data != ""
		for _, s := range table {
			if s.field.decode != nil && (!known || s.secret || s.collected.layer > fromDefault) {
				s.field.decode(d, s.collected, &running)
			}
		}
		if dir := r["etcd-snapshot-dir"]; !known || dir.layer > fromDefault {
			running.Snapshots.Dir = d.pathOr(dir, d.dirs(r).Snapshots())
		}
		return running.Snapshots, p.err()
	}
}

// WithSecret returns the settings with those of a Secret, by the names of the flags, where they are the default ones.
func (s Snapshots) WithSecret(data map[string][]byte) (Snapshots, error) {
	var p problems
	d := &decoder{problems: &p, host: thisHost(), role: Server}
	cfg, r := Config{Snapshots: s}, newRaw()
	for _, row := range snapshotTable() {
		text, ok := data[row.name]
		if !ok || !strings.HasPrefix(row.name, "etcd-s3-") || row.field.text(cfg) != row.def {
			continue
		}
		if row.name == "etcd-s3-endpoint-ca" {
			cfg.Snapshots.S3.CA = text
			continue
		}
		v := r[row.name]
		v.put(row.split(string(text), origin{fromFile, "the Secret " + s.S3.ConfigSecret + ":0"}), fromFile)
		if _, err := strconv.ParseBool(v.one().text); row.kind == toggle && err != nil {
			p.add("%s: %q is not true or false", v.label(), v.one().text)
		}
		row.field.decode(d, v, &cfg)
	}
	return cfg.Snapshots, p.err()
}

// scheduling reports whether a setting concerns only copies that are made by schedule.
func scheduling(name string) bool {
	return name == "etcd-disable-snapshots" || name == "etcd-snapshot-schedule-cron"
}
