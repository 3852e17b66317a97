package coracletest

import (
	"context"
	"testing"
)

// use asks for the first Service, as a test would that begins.
func use(b *testing.B, c *Cluster) {
	b.Helper()
	var o object
	if err := c.get(context.Background(), "/api/v1/namespaces/default/services/kubernetes", &o); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkStart measures the time until a cluster can be used. Its removal is not part of it.
func BenchmarkStart(b *testing.B) {
	for name, o := range map[string]Options{"one": {}, "two": {Nodes: 2}} {
		b.Run(name, func(b *testing.B) { starts(b, o) })
	}
	b.Run("fork", func(b *testing.B) {
		p, err := NewPrepared(context.Background(), Options{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer p.Close()
		starts(b, Options{From: p})
	})
}

func starts(b *testing.B, o Options) {
	for b.Loop() {
		c, err := New(context.Background(), o)
		if err != nil {
			b.Fatal(err)
		}
		use(b, c)
		b.StopTimer()
		if err := c.Stop(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkEight measures eight clusters at the same time, made, used and removed.
func BenchmarkEight(b *testing.B) {
	for b.Loop() {
		ended := make(chan error)
		for range 8 {
			go func() {
				c, err := New(context.Background(), Options{})
				if err == nil {
					var o object
					err = c.get(context.Background(), "/api/v1/namespaces/default/services/kubernetes", &o)
					if errStop := c.Stop(); err == nil {
						err = errStop
					}
				}
				ended <- err
			}()
		}
		for range 8 {
			if err := <-ended; err != nil {
				b.Error(err)
			}
		}
	}
}
