package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// firstServer is a server with every setting that others take over, and what it shares.
func firstServer(t *testing.T, flags ...string) (Config, ClusterSettings) {
	t.Helper()
	cfg, _, err := resolve(Server, flags, nil, edge(), nil)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := cfg.Shared()
	if err != nil {
		t.Fatal(err)
	}
	return cfg, shared
}

// plainServers are servers that differ in what is shared.
func plainServers(t *testing.T) map[string][]string {
	file := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(file, []byte("kind: EncryptionConfiguration\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string][]string{
		"defaults": nil,
		"dual stack": {"--cluster-cidr=10.60.0.0/16,fd60::/56", "--service-cidr=10.61.0.0/16,fd61::/112", "--cluster-dns=10.61.0.5,fd61::5",
			"--cluster-domain=boats", "--flannel-backend=host-gw", "--service-node-port-range=31000-32000", "--disable=dns,kube-proxy"},
		"etcd of others": {"--datastore-endpoint=https://etcd-1:2379,https://etcd-2:2379", "--datastore-prefix=/boats",
			"--datastore-cafile=" + file, "--datastore-certfile=" + file, "--datastore-keyfile=" + file},
		"files": {"--encryption-provider-config=" + file, "--audit-policy-file=" + file, "--kube-scheduler-config=" + file,
			"--admission-control-config-file=" + file, "--enable-admission-plugins=A,B", "--disable-admission-plugins=C"},
	}
}

// TestJoinersShare: who joins with no settings has the first server's.
func TestJoinersShare(t *testing.T) {
	for name, flags := range plainServers(t) {
		t.Run(name, func(t *testing.T) {
			first, shared := firstServer(t, flags...)
			known := &Known{Settings: shared, Servers: []string{"10.0.0.1:6443"}, Joined: true, From: "https://10.0.0.1:6443"}
			second, _, err := resolve(Server, []string{"--server=10.0.0.1"}, nil, edge(), known)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(first.Network, second.Network) || !slices.Equal(first.Disable, second.Disable) ||
				!slices.Equal(first.API.EnableAdmission, second.API.EnableAdmission) || !slices.Equal(first.Datastore.Endpoints, second.Datastore.Endpoints) ||
				first.Datastore.Prefix != second.Datastore.Prefix {
				t.Errorf("the second server is\n%+v, not\n%+v", second, first)
			}
			if !second.Join.Joined || second.Join.Servers[0] != "10.0.0.1:6443" {
				t.Errorf("join %+v", second.Join)
			}
			for path, content := range shared.Files(second.Dirs) {
				if content != "kind: EncryptionConfiguration\n" {
					t.Errorf("%s is %q", path, content)
				}
			}
			if got, want := second.API.EncryptionConfig != "", first.API.EncryptionConfig != ""; got != want {
				t.Errorf("encryption %q", second.API.EncryptionConfig)
			}

			known.Settings = shared.ForAgents()
			agent, _, err := resolve(Agent, []string{"--server=10.0.0.1"}, nil, edge(), known)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(first.Network, agent.Network) || !slices.Equal(first.Disable, agent.Disable) || !slices.Equal(first.Node.IPs, agent.Node.IPs) {
				t.Errorf("the agent is\n%+v, not\n%+v", agent, first)
			}
		})
	}
}

// TestAgentsGetNoSecrets: what agents are told is a short list.
func TestAgentsGetNoSecrets(t *testing.T) {
	_, shared := firstServer(t, plainServers(t)["etcd of others"]...)
	want := []string{"certificate-life", "cluster-cidr", "cluster-dns", "cluster-domain", "disable", "flannel-backend", "hardened", "profile", "service-cidr", "service-node-port-range"}
	var got []string
	for name := range shared.ForAgents() {
		got = append(got, name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("agents get %q", got)
	}
}

func TestContradictions(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "encryption.yaml")
	if err := os.WriteFile(file, []byte("kind: EncryptionConfiguration\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(settings, []byte("cluster-cidr: 10.42.0.0/16\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, shared := firstServer(t, "--cluster-cidr=10.60.0.0/16", "--disable=kube-proxy,dns", "--enable-admission-plugins=B,A", "--certificate-life=2160h", "--pod-eviction-timeout=120s")
	for _, tc := range []struct {
		name       string
		role       Role
		flags, env []string
		remembered bool
		want       string // "" for none
	}{
		{"the same", Server, []string{"--cluster-cidr=10.60.0.0/16", "--disable=dns,kube-proxy", "--enable-admission-plugins=A,B"}, nil, false, ""},
		{"the same in other words", Server, []string{"--certificate-life=2160h", "--pod-eviction-timeout=2m", "--audit"}, nil, false, ""},
		{"another time", Server, []string{"--certificate-life=2161h"}, nil, false, "--certificate-life is 2161h, but the cluster's is 2160h0m0s"},
		{"a range", Server, []string{"--cluster-cidr=10.42.0.0/16"}, nil, false,
			"--cluster-cidr is 10.42.0.0/16, but the cluster's is 10.60.0.0/16, as https://10.0.0.1:6443 says: leave it out, and this machine takes the cluster's"},
		{"a range in the environment", Server, nil, []string{"CORACLE_CLUSTER_CIDR=10.42.0.0/16"}, false, "CORACLE_CLUSTER_CIDR is 10.42.0.0/16, but"},
		{"a range in a file", Server, []string{"--config=" + settings}, nil, false, settings + ":1: cluster-cidr is 10.42.0.0/16, but"},
		{"a service", Agent, []string{"--disable=dns"}, nil, false, "--disable is dns, but the cluster's is dns,kube-proxy, as"},
		{"a file", Server, []string{"--encryption-provider-config=" + file}, nil, false, "--encryption-provider-config: " + file + " differs from what the cluster has"},
		{"remembered and fixed", Server, []string{"--cluster-cidr=10.42.0.0/16"}, nil, true, "which this machine remembers"},
		{"remembered and not fixed", Server, []string{"--flannel-backend=host-gw"}, nil, true, ""},
		{"not fixed", Server, []string{"--flannel-backend=host-gw"}, nil, false, "--flannel-backend is host-gw, but the cluster's is vxlan"},
		{"etcd of others", Server, []string{"--datastore-endpoint=https://a:2379"}, nil, false, "but the cluster's is nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			known := &Known{Settings: shared, Joined: true, From: "https://10.0.0.1:6443"}
			if tc.remembered {
				known.From = ""
			}
			_, _, err := resolve(tc.role, append(tc.flags, "--server=10.0.0.1"), tc.env, edge(), known)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestBeforeJoining: a machine that does not know its cluster yet finds no fault with what the cluster decides.
func TestBeforeJoining(t *testing.T) {
	h := edge()
	cfg, _, err := resolve(Server, []string{"--server=10.0.0.1", "--cluster-cidr=198.51.100.0/24", "--token=abc"}, nil, h, nil)
	if err != nil || cfg.Network.ClusterCIDRs != nil || len(cfg.Node.IPs) != 1 {
		t.Errorf("got %+v, %v", cfg.Network, err)
	}
}

// TestRemembered: a machine that has joined needs no server on its command line.
func TestRemembered(t *testing.T) {
	dir := t.TempDir()
	_, shared := firstServer(t, "--cluster-cidr=10.60.0.0/16")
	for role, file := range map[Role]string{Agent: paths.Dirs{Data: dir}.Cluster(), Server: paths.Dirs{Data: dir}.ServerCluster()} {
		data, err := json.Marshal(Known{Settings: shared, Joined: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, settings, err := inspect(role, []string{"--data-dir=" + dir}, nil, edge())
		if err != nil || len(cfg.Network.ClusterCIDRs) != 1 || cfg.Network.ClusterCIDRs[0].String() != "10.60.0.0/16" {
			t.Errorf("%s: %v, %v", role, cfg.Network, err)
		}
		for _, s := range settings {
			if s.Name == "cluster-cidr" && s.Origin != "the cluster" {
				t.Errorf("%s is from %s", s.Name, s.Origin)
			}
		}
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := inspect(role, []string{"--data-dir=" + dir, "--server=a"}, nil, edge()); err != nil {
			t.Errorf("%s with a damaged file: %v", role, err)
		}
	}
}
