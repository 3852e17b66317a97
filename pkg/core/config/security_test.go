package config

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// TestHardenedForNewClusters: only clusters that begin now have the new defaults, and they keep them, whatever the other settings are.
func TestHardenedForNewClusters(t *testing.T) {
	memory := func(settings ClusterSettings) func(*testing.T, paths.Dirs) {
		return func(t *testing.T, d paths.Dirs) {
			data, err := json.Marshal(Known{Settings: settings})
			if err != nil {
				t.Fatal(err)
			}
			put(t, d.ServerCluster(), data)
		}
	}
	data := func(t *testing.T, d paths.Dirs) { put(t, filepath.Join(d.Etcd(), "member", "snap", "db"), nil) }
	joined := &Known{Joined: true, Settings: ClusterSettings{"cluster-domain": "boats"}}
	for _, one := range []struct {
		name   string
		before func(*testing.T, paths.Dirs)
		flags  []string
		known  *Known
		want   bool
	}{
		{"new", nil, nil, nil, true},
		{"new and not wanted", nil, []string{"--hardened=false"}, nil, false},
		{"began before", memory(ClusterSettings{"cluster-domain": "boats"}), nil, nil, false},
		{"began before settings were kept", data, nil, nil, false},
		{"began before and wanted", data, []string{"--hardened"}, nil, true},
		{"began with it", memory(ClusterSettings{"hardened": "true"}), nil, nil, true},
		{"began without it", memory(ClusterSettings{"hardened": "false"}), nil, nil, false},
		{"joins", nil, []string{"--server=10.0.0.1"}, &Known{Joined: true, Settings: ClusterSettings{"hardened": "true"}}, true},
		{"joins one of an earlier version", nil, []string{"--server=10.0.0.1"}, joined, false},
		{"joined one of an earlier version", nil, nil, joined, false},
	} {
		t.Run(one.name, func(t *testing.T) {
			dirs := paths.Dirs{Data: t.TempDir()}
			if one.before != nil {
				one.before(t, dirs)
			}
			cfg, _, err := resolve(Server, append(one.flags, "--data-dir="+dirs.Data), nil, edge(), one.known)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Security.Hardened != one.want || cfg.Security.Strict() != one.want || (cfg.Security.Ciphers() != nil) != one.want {
				t.Errorf("%+v", cfg.Security)
			}
		})
	}
}

// TestProfile: what follows from the profile, and what the user decides.
func TestProfile(t *testing.T) {
	for _, one := range []struct {
		flags []string
		want  Security
	}{
		{nil, Security{Profile: ProfileStandard, Hardened: true}},
		{[]string{"--profile=cis"}, Security{Profile: ProfileCIS, Hardened: true}},
		{[]string{"--profile=cis", "--pod-security=baseline"}, Security{Profile: ProfileCIS, Hardened: true, PodSecurity: PodBaseline}},
		{[]string{"--profile=cis", "--hardened=false"}, Security{Profile: ProfileCIS}},
	} {
		cfg, shared := firstServer(t, one.flags...)
		if cfg.Security != one.want {
			t.Errorf("%v: %+v", one.flags, cfg.Security)
		}
		if cfg.Security.CIS() && !cfg.Security.Strict() {
			t.Errorf("%v: not strict", one.flags)
		}
		// All servers are started again with another profile: the level follows, unless it was given.
		for profile, level := range map[string]PodLevel{"cis": PodRestricted, "standard": PodPrivileged} {
			again, _, err := resolve(Server, []string{"--profile=" + profile}, nil, edge(), &Known{Joined: true, Settings: shared})
			if want := cmp.Or(one.want.PodSecurity, level); err != nil || again.Security.PodLevel() != want {
				t.Errorf("%v, then --profile=%s: %s, want %s, %v", one.flags, profile, again.Security.PodLevel(), want, err)
			}
		}
		agent, _, err := resolve(Agent, []string{"--server=10.0.0.1"}, nil, edge(), &Known{Joined: true, Settings: shared.ForAgents()})
		if err != nil || agent.Security.Profile != one.want.Profile || agent.Security.Hardened != one.want.Hardened {
			t.Errorf("%v: the agent has %+v, %v", one.flags, agent.Security, err)
		}
	}
}

func put(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
