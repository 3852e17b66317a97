package cis

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestKubeBench: the profile for kube-bench in docs has the same recommendations, each with a test.
func TestKubeBench(t *testing.T) {
	var got []string
	for _, name := range []string{"master", "etcd", "controlplane", "node"} {
		var controls struct {
			Groups []struct {
				Checks []struct {
					ID, Text    string
					Audit       string
					AuditConfig string `yaml:"audit_config"`
					Tests       struct {
						Items []map[string]any `yaml:"test_items"`
					}
					Scored bool
				}
			}
		}
		data, err := os.ReadFile("../../../docs/kube-bench/coracle-cis-1.12/" + name + ".yaml")
		if err == nil {
			err = yaml.Unmarshal(data, &controls)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range controls.Groups {
			for _, c := range g.Checks {
				if c.Audit+c.AuditConfig == "" || len(c.Tests.Items) == 0 || c.Scored != strings.HasSuffix(c.Text, "(Automated)") {
					t.Errorf("%s: %+v", name, c)
				}
				got = append(got, c.ID+" "+c.Text)
			}
		}
	}
	var want []string
	for _, r := range slices.Concat(controlPlane(), node()) {
		who := " (Manual)"
		if r.kind == automated {
			who = " (Automated)"
		}
		want = append(want, r.id+" "+r.about+who)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the profile has\n%s, not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
