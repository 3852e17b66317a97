package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"
)

func addresses(t *testing.T, list ...string) []*current.IPConfig {
	t.Helper()
	var out []*current.IPConfig
	for _, text := range list {
		ip, subnet, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, &current.IPConfig{Address: net.IPNet{IP: ip, Mask: subnet.Mask}})
	}
	return out
}

func TestMAC(t *testing.T) {
	for name, c := range map[string]struct {
		ips  []string
		want string
	}{
		"IPv4":             {[]string{"10.42.3.2/24"}, "0a:58:0a:2a:03:02"},
		"dual stack":       {[]string{"10.42.3.255/16", "fd00:42::2/64"}, "0a:58:0a:2a:03:ff"},
		"IPv6 first":       {[]string{"fd00:42::2/64", "10.42.3.2/24"}, "0a:58:0a:2a:03:02"},
		"IPv6":             {[]string{"fd00:42::2/64"}, "0a:58:3a:04:49:98"},
		"another IPv6":     {[]string{"fd00:42::3/64"}, "0a:58:3b:04:4b:2b"},
		"no address given": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mac(addresses(t, c.ips...)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

const goodConf = `{"cniVersion":"1.1.0","name":"coracle","type":"coracle","bridge":"cni0",
	"subnetFile":"/run/coracle/subnet.json","dataDir":"/var/lib/coracle/node/cni"}`

func TestParseConf(t *testing.T) {
	if _, err := parseConf([]byte(goodConf)); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"name", "bridge", "subnetFile", "dataDir"} {
		_, err := parseConf([]byte(strings.Replace(goodConf, `"`+key+`"`, `"other"`, 1)))
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("without %s: %v", key, err)
		}
	}
	if _, err := parseConf([]byte("[]")); err == nil {
		t.Error("took a list")
	}
}

func TestDelegate(t *testing.T) {
	c, err := parseConf([]byte(goodConf))
	if err != nil {
		t.Fatal(err)
	}
	leased := &result{CNIVersion: "1.1.0", IPs: addresses(t, "10.42.3.2/24")}
	for name, d := range map[string]struct {
		conf   func(*conf)
		mtu    int
		leased *result
		want   string
	}{
		"add": {func(*conf) {}, 1450, leased, `{"cniVersion":"1.1.0","name":"coracle","type":"bridge","bridge":"cni0",
			"isDefaultGateway":true,"forceAddress":true,"hairpinMode":true,"mtu":1450,
			"ipam":{"type":"leased","result":{"cniVersion":"1.1.0","ips":[{"address":"10.42.3.2/24"}]}},
			"runtimeConfig":{"mac":"0a:58:0a:2a:03:02"}}`},
		"the configuration's MTU wins": {func(c *conf) { c.MTU = 1300 }, 1450, nil, `{"cniVersion":"1.1.0","name":"coracle",
			"type":"bridge","bridge":"cni0","isDefaultGateway":true,"forceAddress":true,"hairpinMode":true,"mtu":1300,
			"runtimeConfig":{}}`},
		"delete": {func(*conf) {}, 0, nil, `{"cniVersion":"1.1.0","name":"coracle","type":"bridge","bridge":"cni0",
			"isDefaultGateway":true,"forceAddress":true,"hairpinMode":true,"runtimeConfig":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			d.conf(&c)
			got, err := c.delegate(d.mtu, d.leased)
			if err != nil {
				t.Fatal(err)
			}
			if compact(t, got) != compact(t, []byte(d.want)) {
				t.Errorf("got  %s\nwant %s", compact(t, got), compact(t, []byte(d.want)))
			}
		})
	}
}

// compact normalises JSON: no space, keys sorted.
func compact(t *testing.T, data []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
