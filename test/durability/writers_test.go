package durability

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// writers write keys, each once, and remember which were acknowledged.
type writers struct {
	stop  context.CancelFunc
	group sync.WaitGroup

	mu           sync.Mutex
	acknowledged map[string]string
	longest      time.Duration // between two acknowledgements
	last         time.Time
}

// padding makes a write as large as a usual object of Kubernetes.
var padding = strings.Repeat("x", 1500)

func (m *machine) write(run string) *writers {
	ctx, stop := context.WithCancel(context.Background())
	w := &writers{stop: stop, acknowledged: map[string]string{}, last: time.Now()}
	for i := range 4 {
		w.group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				w.put(ctx, m, fmt.Sprintf("%s-%d-%d", run, i, n))
			}
		})
	}
	return w
}

// put writes with a connection of its own while there are failures, and with one for many keys otherwise.
func (w *writers) put(ctx context.Context, m *machine, prefix string) {
	c := m.client()
	defer c.Close()
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("%s-%d", prefix, n)
		try, cancel := context.WithTimeout(ctx, 15*time.Second)
		_, err := c.Put(try, key, key+padding)
		cancel()
		if err != nil {
			<-time.After(20 * time.Millisecond)
			return
		}
		w.mu.Lock()
		w.acknowledged[key] = key + padding
		w.longest = max(w.longest, time.Since(w.last))
		w.last = time.Now()
		w.mu.Unlock()
	}
}

func (w *writers) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acknowledged)
}

// longestPause is the longest time between two acknowledgements since the last call.
func (w *writers) longestPause() (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest, w.longest = w.longest, 0
	return longest
}

// await waits until so many more writes were acknowledged.
func (w *writers) await(more int, within time.Duration) error {
	want := w.count() + more
	for deadline := time.Now().Add(within); w.count() < want; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("only %d of %d writes were acknowledged within %s", more-(want-w.count()), more, within)
		}
	}
	return nil
}

// end stops the writers.
func (w *writers) end() {
	w.stop()
	w.group.Wait()
}

// lost are the acknowledged writes that are not there.
func (w *writers) lost(t *testing.T, m *machine) (lost []string) {
	t.Helper()
	c := m.client()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found := map[string]string{}
	for key := "\x00"; ; { // in pages, because of the limit for one answer
		got, err := c.Get(ctx, key, clientv3.WithFromKey(), clientv3.WithLimit(500))
		if err != nil {
			t.Fatalf("reading all keys: %v", err)
		}
		for _, kv := range got.Kvs {
			found[string(kv.Key)] = string(kv.Value)
			key = string(kv.Key) + "\x00"
		}
		if !got.More {
			break
		}
	}
	for key, value := range w.acknowledged {
		if found[key] != value {
			lost = append(lost, key)
		}
	}
	return lost
}
