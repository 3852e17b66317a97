package flannel

import "testing"

func TestDrops(t *testing.T) {
	const head = "table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy "
	tests := []struct {
		name, chain string
		want        bool
	}{
		{"docker", head + "drop;\n\t\tcounter jump DOCKER-USER\n\t}\n}\n", true},
		{"accepts", head + "accept;\n\t}\n}\n", false},
		{"lets pods through", head + "drop;\n\t\tip saddr 10.42.0.0/16 accept\n\t}\n}\n", false},
	}
	for _, tt := range tests {
		if got := drops(tt.chain, four); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if got := remedy("iptables", four); got != "iptables -I FORWARD -s 10.42.0.0/16 -j ACCEPT; iptables -I FORWARD -d 10.42.0.0/16 -j ACCEPT" {
		t.Error(got)
	}
}
