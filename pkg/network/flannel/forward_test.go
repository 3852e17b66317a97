package flannel

import "testing"

func TestDrops(t *testing.T) {
	tests := []struct {
		name, chain string
		want        bool
	}{
		{"docker", "-P FORWARD DROP\n-A FORWARD -j DOCKER-USER\n", true},
		{"accepts", "-P FORWARD ACCEPT\n", false},
		{"lets pods through", "-P FORWARD DROP\n-A FORWARD -s 10.42.0.0/16 -j ACCEPT\n", false},
	}
	for _, tt := range tests {
		if got := drops(tt.chain, four); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if got := remedy("iptables-legacy", four); got != "iptables-legacy -I FORWARD -s 10.42.0.0/16 -j ACCEPT; iptables-legacy -I FORWARD -d 10.42.0.0/16 -j ACCEPT" {
		t.Error(got)
	}
}
