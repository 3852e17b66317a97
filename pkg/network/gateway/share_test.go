package gateway

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestWithoutAddresses: of listeners with addresses of their own nothing is left, neither keys nor backends.
func TestWithoutAddresses(t *testing.T) {
	backend := func(name string) []Backend {
		return []Backend{{Endpoints: name, Weight: 1, TLS: &BackendTLS{Certificate: "Secret " + name}}}
	}
	c := Config{
		Listeners: []Listener{
			{Name: "all", Port: 443, Certificates: map[string][]string{"": {"Secret common"}}},
			{Name: "own", Addresses: []string{"192.0.2.9"}, Port: 443, Certificates: map[string][]string{"": {"Secret own", "Secret common"}}},
		},
		Certificates: []Certificate{{Source: "Secret common"}, {Source: "Secret own"}, {Source: "Secret here"}, {Source: "Secret there"}, {Source: "Secret unused"}},
		Routes: []Route{
			{Listeners: []string{"all", "own"}, Backends: backend("here"), Policy: "p", Filters: Filters{Mirrors: []Mirror{{Backend: Backend{Endpoints: "mirror"}}}}},
			{Listeners: []string{"own"}, Backends: backend("there"), Policy: "q"},
		},
		Streams:  []Stream{{Listeners: []string{"own"}, Backends: backend("there")}, {Listeners: []string{"all"}, Backends: backend("stream")}},
		Policies: map[string]Policy{"p": {Errors: &ErrorPages{Backend: Backend{Endpoints: "pages"}}}, "q": {}},
	}
	all := Endpoints{"here": {"a"}, "mirror": {"b"}, "there": {"c"}, "stream": {"d"}, "pages": {"e"}}
	before, _ := json.Marshal(c)
	got, endpoints := WithoutAddresses(c, all)
	text, _ := json.Marshal([]any{got, endpoints})
	for _, gone := range []string{"own", "there", "unused", `"q"`, "192.0.2.9"} {
		if strings.Contains(string(text), gone) {
			t.Errorf("%s is left: %s", gone, text)
		}
	}
	if len(got.Listeners) != 1 || len(got.Certificates) != 2 || len(got.Routes) != 1 || len(got.Streams) != 1 || len(got.Policies) != 1 || len(endpoints) != 4 {
		t.Errorf("%s", text)
	}
	if after, _ := json.Marshal(c); string(after) != string(before) || len(all) != 5 {
		t.Error("what the server itself serves is changed")
	}
}
