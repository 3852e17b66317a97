package networkpolicy

import (
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

func TestBlockRanges(t *testing.T) {
	type block = networkingv1.IPBlock
	for name, tt := range map[string]struct {
		blocks []*block
		want   string
	}{
		"one":                    {[]*block{{CIDR: "10.1.2.0/24"}}, "[10.1.2.0-10.1.2.255]"},
		"host bits":              {[]*block{{CIDR: "10.1.2.3/24"}}, "[10.1.2.0-10.1.2.255]"},
		"one address":            {[]*block{{CIDR: "10.1.2.3/32"}}, "[10.1.2.3]"},
		"in the middle":          {[]*block{{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}}, "[10.0.0.0-10.0.255.255 10.2.0.0-10.255.255.255]"},
		"at the ends":            {[]*block{{CIDR: "10.0.0.0/30", Except: []string{"10.0.0.0/32", "10.0.0.3/32"}}}, "[10.0.0.1-10.0.0.2]"},
		"all of it":              {[]*block{{CIDR: "10.0.0.0/30", Except: []string{"10.0.0.0/29"}}}, "[]"},
		"what another allows":    {[]*block{{CIDR: "10.0.0.0/24", Except: []string{"10.0.0.128/25"}}, {CIDR: "10.0.0.200/32"}}, "[10.0.0.0-10.0.0.127 10.0.0.200]"},
		"touching":               {[]*block{{CIDR: "10.0.1.0/24"}, {CIDR: "10.0.0.0/24"}}, "[10.0.0.0-10.0.1.255]"},
		"overlapping exceptions": {[]*block{{CIDR: "10.0.0.0/24", Except: []string{"10.0.0.0/25", "10.0.0.64/26"}}}, "[10.0.0.128-10.0.0.255]"},
		"everything":             {[]*block{{CIDR: "0.0.0.0/0"}}, "[0.0.0.0-255.255.255.255]"},
		"but the last":           {[]*block{{CIDR: "255.255.255.254/31", Except: []string{"255.255.255.255/32"}}}, "[255.255.255.254]"},
		"the last and the first": {[]*block{{CIDR: "255.255.255.255/32"}, {CIDR: "::/128"}}, "[255.255.255.255 ::]"},
		"both families":          {[]*block{{CIDR: "fd00::/16"}, {CIDR: "10.0.0.0/8"}}, "[10.0.0.0-10.255.255.255 fd00::-fd00:ffff:ffff:ffff:ffff:ffff:ffff:ffff]"},
		"of the other family":    {[]*block{{CIDR: "10.0.0.0/30", Except: []string{"::/0"}}}, "[10.0.0.0-10.0.0.3]"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := blockRanges(tt.blocks)
			if err != nil || fmt.Sprint(got) != tt.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	for _, bad := range []*block{{CIDR: "10.0.0.0"}, {CIDR: "10.0.0.0/8", Except: []string{"x"}}} {
		if _, err := blockRanges([]*block{bad}); err == nil {
			t.Errorf("%v was read", bad)
		}
	}
}

func TestMergedPorts(t *testing.T) {
	got := mergedPorts([]portRange{{8080, 8090}, {80, 80}, {8085, 8100}, {81, 81}, {1, 65535}})
	if fmt.Sprint(got) != "[1-65535]" {
		t.Errorf("got %v", got)
	}
	got = mergedPorts([]portRange{{443, 443}, {80, 80}, {81, 90}, {85, 86}, {65535, 65535}})
	if fmt.Sprint(got) != "[80-90 443 65535]" {
		t.Errorf("got %v", got)
	}
}
