package gateway

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/gatewayapi"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
)

// BenchmarkManyRoutes measures the parts of a change with 10,000 HTTPRoutes.
func BenchmarkManyRoutes(b *testing.B) {
	all := newTenants()
	for i := range 10000 {
		all.route("shop", int64(i), v1.Hostname(fmt.Sprintf("host-%d.test", i)))
		r := all.own.HTTPRoutes[i]
		r.Name, r.UID = fmt.Sprint("route-", i), types.UID(fmt.Sprint(i))
	}
	o := translated(all.read, all.own, false)
	config, endpoints := o.merged()
	data, err := json.Marshal(config)
	if err != nil {
		b.Fatal(err)
	}
	var read gateway.Config
	table := routes.New(config, endpoints, nil)
	for _, part := range []struct {
		name string
		do   func()
	}{
		{"translation", func() { translated(all.read, all.own, false) }},
		{"translation beside Ingresses", func() { translated(all.read, all.own, true) }},
		{"statuses", func() { o.api.Statuses(gatewayapi.Applied{}) }},
		{"merging", func() { o.merged() }},
		{"writing", func() { _, _ = json.Marshal(config) }},
		{"reading", func() { read = gateway.Config{}; _ = json.Unmarshal(data, &read) }},
		{"table of requests", func() { table = routes.New(config, endpoints, table) }},
		{"table of streams", func() { routes.NewStreams(config) }},
	} {
		b.Run(part.name, func(b *testing.B) {
			for b.Loop() {
				part.do()
			}
		})
	}
}

// TestRest: work for many objects is followed by as long a rest, a second at most, so that changes without end take half of the time.
func TestRest(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: 0, 50 * time.Millisecond: 0, 300 * time.Millisecond: 300 * time.Millisecond, time.Minute: longestRest} {
		now := time.Now()
		if rest := restAfter(now.Add(-took)).Sub(now); rest < want || rest > want+40*time.Millisecond {
			t.Errorf("after work of %s a rest of %s, want %s", took, rest, want)
		}
	}
}
