package config

import (
	"slices"
	"strings"
	"testing"
)

func TestWaysToLeaveOutServices(t *testing.T) {
	for name, tt := range map[string]struct {
		args, environ []string
		want          string
		remark        string
	}{
		"ours":              {args: []string{"--disable=servicelb", "--disable=dns"}, want: "dns,servicelb"},
		"k3s's word":        {args: []string{"--disable=coredns,dns"}, want: "dns"},
		"flags of one each": {args: []string{"--disable-network-policy", "--disable-kube-proxy", "--disable-helm-controller"}, want: "helm-controller,kube-proxy,network-policy"},
		"both":              {args: []string{"--disable=network-policy", "--disable-network-policy"}, want: "network-policy"},
		"a flag and a variable": {args: []string{"--disable-network-policy"}, environ: []string{"CORACLE_DISABLE=metrics-server"},
			want: "metrics-server,network-policy"},
		"switched on again": {args: []string{"--disable-network-policy=false"}, environ: []string{"CORACLE_DISABLE_NETWORK_POLICY=true"}},
		"not brought":       {args: []string{"--disable=traefik,dns"}, want: "dns", remark: "--disable: traefik: coracle brings no ingress controller"},
		"by a variable":     {environ: []string{"CORACLE_DISABLE=traefik"}, remark: "CORACLE_DISABLE: traefik: "},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _, err := resolve(Server, tt.args, tt.environ, edge(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(cfg.Disable, ","); got != tt.want {
				t.Errorf("leaves out %q, want %q", got, tt.want)
			}
			if tt.remark == "" && len(cfg.Remarks) > 0 || tt.remark != "" && !slices.ContainsFunc(cfg.Remarks, func(s string) bool { return strings.HasPrefix(s, tt.remark) }) {
				t.Errorf("remarks %q, want %q", cfg.Remarks, tt.remark)
			}
		})
	}
}

// TestLeavingOutAgainstTheCluster sees that what a machine is given is compared as a whole with what its cluster has.
func TestLeavingOutAgainstTheCluster(t *testing.T) {
	_, shared := firstServer(t, "--disable=coredns", "--disable-network-policy")
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"the same":          {args: []string{"--disable=dns,network-policy"}},
		"other spellings":   {args: []string{"--disable=coredns", "--disable-network-policy"}},
		"nothing":           {},
		"one of them":       {args: []string{"--disable-network-policy"}, want: "--disable is network-policy, but the cluster's is dns,network-policy"},
		"only not switched": {args: []string{"--disable-network-policy=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"--server=https://192.0.2.1:6443", "--token=x"}, tt.args...)
			cfg, _, err := resolve(Agent, args, nil, edge(), &Known{Settings: shared, From: "https://192.0.2.1:6443", Joined: true})
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want == "" && !slices.Equal(cfg.Disable, []string{"dns", "network-policy"}):
				t.Errorf("leaves out %q", cfg.Disable)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
