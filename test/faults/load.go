package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// missing is the value that a read reports for a register that does not exist.
const missing = "(not found)"

// pace is the rate of a client. A beat does not wait for the previous answer, so that a request that hangs does not
// hide that others would succeed; a worker does wait.
type pace struct {
	beat    time.Duration // between two creations, and between two reads; 0 for none
	workers int           // that write registers
	pause   time.Duration // of a worker between two requests
	timeout time.Duration // of a request
	cached  bool          // reads may be answered from an API server's cache, however old
}

// client uses the API from one host.
type client struct {
	host string
	api  rest.Interface
	gate *gate
}

// gate stops a host's client while its host is down.
type gate struct {
	mu   sync.RWMutex
	down bool
}

var errDown = errors.New("the client's host is down")

// set opens or closes the gate. It returns when no connection is being dialled from the host.
func (g *gate) set(down bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.down = down
}

func (g *gate) isDown() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.down
}

// newClient makes a host's client, which dials through its gate. It does not retry by itself.
func newClient(host string, config *rest.Config, g *gate) (*client, error) {
	dial := config.Dial
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		g.mu.RLock()
		defer g.mu.RUnlock()
		if g.down {
			return nil, errDown
		}
		return dial(ctx, network, address)
	}
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &client{host, set.CoreV1().RESTClient(), g}, nil
}

// namespace has all objects.
const namespace = "faults"

// load is the concurrent work of some clients on a few registers and any number of objects.
type load struct {
	name string // prefix of all its objects: a DNS label
	keys []string
	pace pace
	seen *history

	count atomic.Int64 // of values
	stop  context.CancelFunc
	group sync.WaitGroup
}

// registers is the number of registers, small so that clients conflict.
const registers = 6

// begin creates the registers through the first client that succeeds, and starts all clients.
func begin(ctx context.Context, name string, clients []*client, p pace) (*load, error) {
	l := &load{name: name, pace: p, seen: newHistory()}
	for i := range registers {
		l.keys = append(l.keys, name+"-register-"+strconv.Itoa(i))
	}
	if err := l.prepare(ctx, clients[0]); err != nil {
		return nil, fmt.Errorf("preparing %s: %w", name, err)
	}
	ctx, l.stop = context.WithCancel(ctx)
	for _, c := range clients {
		if p.beat > 0 {
			l.beat(ctx, func() { l.create(ctx, c) }, c)
			l.beat(ctx, func() { l.read(ctx, c, l.key()) }, c)
		}
		for range p.workers {
			l.group.Go(func() { l.work(ctx, c) })
		}
	}
	return l, nil
}

// prepare creates the namespace and the registers.
func (l *load) prepare(ctx context.Context, c *client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := persist(ctx, c.api.Post().Resource("namespaces").Body(ns)); err != nil {
		return err
	}
	for _, key := range l.keys {
		request := c.api.Post().Namespace(namespace).Resource("configmaps").Body(l.configMap(key, initial))
		if err := persist(ctx, request); err != nil {
			return err
		}
	}
	return nil
}

// persist creates an object that has only one creator, and retries until it exists.
func persist(ctx context.Context, post *rest.Request) error {
	for {
		try, cancel := context.WithTimeout(ctx, 15*time.Second)
		err := post.Do(try).Error()
		cancel()
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// end stops the clients, waits for their requests, and returns what they observed.
func (l *load) end() []op {
	l.stop()
	l.group.Wait()
	return l.seen.all()
}

// beat calls a function in intervals, without waiting for earlier calls.
func (l *load) beat(ctx context.Context, do func(), c *client) {
	l.group.Go(func() {
		ticker := time.NewTicker(l.pace.beat)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if !c.gate.isDown() {
					l.group.Go(do)
				}
			}
		}
	})
}

// work writes registers, one request after the other.
func (l *load) work(ctx context.Context, c *client) {
	for ctx.Err() == nil {
		if !c.gate.isDown() {
			switch rand.IntN(4) {
			case 0:
				l.list(ctx, c)
			case 1:
				l.swap(ctx, c, l.key())
			default:
				l.write(ctx, c, l.key())
			}
		}
		time.Sleep(l.pace.pause)
	}
}

func (l *load) key() string { return l.keys[rand.IntN(len(l.keys))] }

// value returns a value that no other client writes.
func (l *load) value() string { return strconv.FormatInt(l.count.Add(1), 10) }

const (
	valueKey = "value"     // in a ConfigMap's data
	runLabel = "faultsrun" // has the load's name, on its registers
)

func (l *load) configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{runLabel: l.name}},
		Data:       map[string]string{valueKey: value},
	}
}

// do makes a request and records its outcome. It runs to its end even if the load is stopped.
func (l *load) do(ctx context.Context, o op, request *rest.Request) op {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.pace.timeout)
	defer cancel()
	var got corev1.ConfigMap
	o.call = l.seen.now()
	err := request.MaxRetries(0).Do(ctx).Into(&got)
	o.end = l.seen.now()
	switch {
	case err == nil:
		o.settle(&got)
	case o.kind == read && apierrors.IsNotFound(err):
		o.value, o.acknowledged = missing, true
	case apierrors.IsConflict(err): // the register had changed: the swap did not happen
		return o
	}
	l.seen.add(o)
	return o
}

// settle records the content of the answer.
func (o *op) settle(got *corev1.ConfigMap) {
	o.acknowledged = true
	o.revision, _ = strconv.ParseInt(got.ResourceVersion, 10, 64)
	if o.kind == read {
		o.value = got.Data[valueKey]
	}
}

// read reads a register without a resourceVersion, so the newest value. Only a cached read may be older.
func (l *load) read(ctx context.Context, c *client, key string) op {
	request := c.api.Get().Namespace(namespace).Resource("configmaps").Name(key)
	if l.pace.cached {
		request.Param("resourceVersion", "0")
	}
	return l.do(ctx, op{client: c.host, kind: read, key: key}, request)
}

// write puts a value into a register, whatever its value.
func (l *load) write(ctx context.Context, c *client, key string) {
	value := l.value()
	request := c.api.Put().Namespace(namespace).Resource("configmaps").Name(key).Body(l.configMap(key, value))
	l.do(ctx, op{client: c.host, kind: write, key: key, value: value}, request)
}

// swap reads a register and writes another value if it has not changed since.
func (l *load) swap(ctx context.Context, c *client, key string) {
	was := l.read(ctx, c, key)
	if !was.acknowledged || was.value == missing {
		return
	}
	value := l.value()
	next := l.configMap(key, value)
	next.ResourceVersion = strconv.FormatInt(was.revision, 10)
	request := c.api.Put().Namespace(namespace).Resource("configmaps").Name(key).Body(next)
	l.do(ctx, op{client: c.host, kind: swap, key: key, value: value, old: was.value}, request)
}

// create creates an object that is not changed afterwards.
func (l *load) create(ctx context.Context, c *client) {
	value := l.value()
	key := l.name + "-object-" + value
	cm := l.configMap(key, value)
	cm.Labels = nil
	request := c.api.Post().Namespace(namespace).Resource("configmaps").Body(cm)
	l.do(ctx, op{client: c.host, kind: create, key: key, value: value}, request)
}

// list reads all registers at once, which the API server answers from its cache once that is new enough.
func (l *load) list(ctx context.Context, c *client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.pace.timeout)
	defer cancel()
	var got corev1.ConfigMapList
	call := l.seen.now()
	err := c.api.Get().Namespace(namespace).Resource("configmaps").Param("labelSelector", runLabel+"="+l.name).
		MaxRetries(0).Do(ctx).Into(&got)
	if err != nil {
		return
	}
	ops := map[string]op{}
	for _, key := range l.keys {
		ops[key] = op{client: c.host, kind: read, key: key, value: missing, call: call, end: l.seen.now(), acknowledged: true}
	}
	for _, item := range got.Items {
		if o, ok := ops[item.Name]; ok {
			o.settle(&item)
			ops[item.Name] = o
		}
	}
	for _, o := range ops {
		l.seen.add(o)
	}
}
