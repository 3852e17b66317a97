package kube

import (
	"strings"
	"testing"
)

func TestShareFeatureGates(t *testing.T) {
	parts := []string{"kube-apiserver", "kube-scheduler"}
	for name, c := range map[string]struct {
		args map[string][]string
		want string
		err  string
	}{
		"none": {args: map[string][]string{"kube-apiserver": {"v=2"}}},
		"one":  {args: map[string][]string{"kube-scheduler": {"feature-gates=A=true"}}, want: "feature-gates=A=true"},
		"union": {args: map[string][]string{
			"kube-apiserver": {"feature-gates=B=true,A=false", "--feature_gates=D=true"},
			"kube-scheduler": {"feature-gates=C=true,A=false"},
		}, want: "feature-gates=A=false,B=true,C=true,D=true"},
		"contradiction": {args: map[string][]string{
			"kube-apiserver": {"feature-gates=A=true"},
			"kube-scheduler": {"feature-gates=A=false"},
		}, err: "--kube-apiserver-arg and --kube-scheduler-arg set feature gate A to true and to false"},
		"another part": {args: map[string][]string{"kubelet": {"feature-gates=A=true"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ShareFeatureGates(c.args, parts...)
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got error %v, want %q", err, c.err)
			}
		})
	}
}
