package bench

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/test/buckets"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/registries"
)

const (
	objects      = 3000 // of objectSize: a database of 300 MB
	objectSize   = 100 << 10
	backupSettle = time.Minute
)

// measureBackup backs up a cluster with 300 MB of objects into a bucket as the schedule does, again after CORACLE_BENCH_IDLE (ten minutes)
// in which nothing but the cluster itself writes (etcd keeps the history of ten minutes, so it is as after an hour), loses the machine, and restores on an empty one that has the bucket and a private key.
func measureBackup(t *testing.T, wire *hosts.Wire, r *results) {
	idle, err := time.ParseDuration(os.Getenv("CORACLE_BENCH_IDLE"))
	if err != nil {
		idle = 10 * time.Minute
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	provider := hosts.New(t, wire, "bucket", hosts.Options{})
	s3 := buckets.Start(t, provider, provider.IP.String()+":9000", registries.NewAuthority(t, "s3"))
	flags := []string{"--etcd-s3=true", "--etcd-s3-endpoint=" + s3.Addr, "--etcd-s3-endpoint-ca=/root/ca.crt", "--etcd-s3-bucket=" + s3.Bucket,
		"--etcd-s3-access-key=" + s3.Access, "--etcd-s3-secret-key=" + s3.Secret}
	elsewhere(t, provider, s3)
	authority, err := os.ReadFile(s3.CA)
	if err != nil {
		t.Fatal(err)
	}
	write := func(h *hosts.Host, file, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(h.Path(file)), 0o755), os.WriteFile(h.Path(file), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	machine := func(name string) *hosts.Host {
		h := hosts.New(t, wire, name, hosts.Options{})
		write(h, "/root/ca.crt", string(authority))
		write(h, "/root/key", identity.String()+"\n")
		return h
	}
	lost := machine("lost")
	configuration := "etcd-snapshot-recipient: " + identity.Recipient().String() + "\netcd-snapshot-schedule-cron: '@yearly'\n"
	for _, flag := range flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		configuration += name + ": " + value + "\n"
	}
	write(lost, "/etc/coracle/config.yaml", configuration)
	lost.Start()
	lost.Coracle("wait", "--timeout", "60s")
	client := quick(t, lost)
	fill(t, client)
	lost.Kubectl("create", "secret", "generic", "treasure", "--from-literal=where=reef")
	time.Sleep(backupSettle)
	save(t, lost, r, "first backup of 300 MB")
	save(t, lost, r, "next backup of 300 MB")
	time.Sleep(idle) // until etcd has dropped the history of these writes
	lost.Coracle("etcd", "snapshot", "save")
	before := size(s3)
	time.Sleep(idle)
	lost.Coracle("etcd", "snapshot", "save")
	r.add(fmt.Sprintf("backup after %s of idle: sent to the bucket", idle), "MB", 1, float64(size(s3)-before)/1e6)
	lost.Kill()

	found := machine("found")
	began := time.Now()
	found.Coracle(append(append([]string{"etcd", "snapshot", "restore"}, flags...), "--identity=/root/key")...)
	r.add("restore of 300 MB from the bucket: command", "s", 0, time.Since(began).Seconds())
	found.Start()
	found.Coracle("wait", "--timeout", "60s", "--for", "api")
	r.add("restore of 300 MB from the bucket: API ready", "s", 15, time.Since(began).Seconds())
	found.Coracle("wait", "--timeout", "60s")
	r.add("restore of 300 MB from the bucket: node Ready", "s", 0, time.Since(began).Seconds())
	if got := found.Kubectl("get", "secret", "treasure", "-o", "jsonpath={.data.where}"); got != "cmVlZg==" {
		t.Errorf("the Secret is %q", got)
	}
	if n := strings.Count(found.Kubectl("get", "configmaps", "-o", "name"), "/fill-"); n != objects {
		t.Errorf("there are %d of %d objects", n, objects)
	}
	found.Kill()
	provider.Kill()
}

// elsewhere has a bucket's server use no processor and no disk that coracle wants, as its provider is another machine.
func elsewhere(t *testing.T, provider *hosts.Host, s *buckets.Server) {
	t.Helper()
	provider.RunLast(s.PID())
	if err := unix.Mount("tmpfs", s.Dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(s.Dir, unix.MNT_DETACH) })
}

// quick returns a client that does not limit itself.
func quick(t *testing.T, h *hosts.Host) kubernetes.Interface {
	t.Helper()
	cfg := h.RESTConfig()
	cfg.QPS, cfg.Burst = 2000, 2000
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// fill creates objects of random bytes, which cannot be compressed.
func fill(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for i := range objects {
		g.Go(func() error {
			data := make([]byte, objectSize)
			_, _ = rand.Read(data)
			_, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("fill-", i)},
				BinaryData: map[string][]byte{"random": data}}, metav1.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// save makes a backup as the schedule does while a client writes 40 times a second, and compares with the time before it.
func save(t *testing.T, h *hosts.Host, r *results, what string) {
	t.Helper()
	alone, before := writes(t, h, func(ended chan<- error) {
		time.Sleep(40 * time.Second)
		ended <- nil
	})
	began := time.Now()
	during, most := writes(t, h, func(ended chan<- error) {
		_, err := h.Try("setsid", "--wait", "env", "GOMAXPROCS=1", hosts.Bin(t), "etcd", "snapshot", "save", "--scheduled") // as package front runs it, in a group of its own
		ended <- err
	})
	took := time.Since(began)
	r.add(what+": made, encrypted, uploaded, tried", "s", 60, took.Seconds())
	r.add(what+": memory more than without it", "MB", 100, float64(most-before)/1e6)
	r.add(what+": p99 of writes without it", "ms", 0, alone)
	r.add(what+": p99 of writes meanwhile", "ms", 0, during)
	r.add(what+": p99 of writes, times that without it", "", 1.5, during/alone)
}

// writes creates an object 40 times a second until something has ended. It returns the duration that 99 of 100 of them took at most, in ms, and the most memory that
// the host used, in bytes.
func writes(t *testing.T, h *hosts.Host, until func(ended chan<- error)) (p99 float64, memory int64) {
	t.Helper()
	client, ended := quick(t, h), make(chan error, 1)
	go until(ended)
	var all []float64
	for tick := time.NewTicker(25 * time.Millisecond); ; <-tick.C {
		began := time.Now()
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "write-"}}, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
		all = append(all, float64(time.Since(began).Microseconds())/1000)
		memory = max(memory, h.Memory())
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			slices.Sort(all)
			return all[len(all)*99/100], memory
		default:
		}
	}
}

// size is the size of all objects in a bucket, in bytes.
func size(s *buckets.Server) (sum int64) {
	for _, n := range s.Files() {
		sum += n
	}
	return sum
}
