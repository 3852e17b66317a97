package bucket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
	"github.com/coracle-dev/coracle/test/buckets"
	"github.com/coracle-dev/coracle/test/registries"
)

// listen returns an address of this host that nobody listens on.
func listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func settings(s *buckets.Server) config.S3 {
	return config.S3{
		On: true, Endpoint: s.Addr, EndpointCA: s.CA, Insecure: s.CA == "", Bucket: s.Bucket, Lookup: "path", Folder: "edge/", Region: "us-east-1",
		Timeout: 10 * time.Second, AccessKey: s.Access, SecretKey: s.Secret,
	}
}

func mustOpen(t *testing.T, s config.S3) *Bucket {
	t.Helper()
	b, err := Open(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	testKey  = PieceKey{1, 2, 3}
	testKeys = backup.Keys{Password: "token"}
	server   = backup.Series{Name: "nightly", Node: "server-1", Cluster: strings.Repeat("0123456789abcdef", 4)}
)

func summary(name string, age time.Duration) backup.Summary {
	return backup.Summary{Name: name, Node: server.Node, Cluster: server.Cluster, Created: time.Now().UTC().Add(-age), Revision: 7}
}

// records is a content like that of a cluster: many entries in an order.
func records(n int) []byte {
	random, out := rand.New(rand.NewPCG(1, 2)), bytes.Buffer{}
	for i := range n {
		fmt.Fprintf(&out, "entry %08d ", i)
		for range 40 {
			fmt.Fprintf(&out, "%x", random.Uint64())
		}
	}
	return out.Bytes()
}

// TestCopies: what is put can be had again, a copy of nearly the same costs little, and what is removed costs nothing any more.
func TestCopies(t *testing.T) {
	s := buckets.Start(t, nil, listen(t), registries.NewAuthority(t, "test"))
	b := mustOpen(t, settings(s))
	first := records(20_000)
	second := append(bytes.Replace(first, []byte("entry 00015000 "), []byte("entry 00015000 changed "), 1), "entry new"...)
	copies := map[string][]byte{"first": first, "second": second}
	sent := map[string]Sent{}
	for i, name := range []string{"first", "second"} {
		got, err := b.Put(t.Context(), summary(name, time.Hour-time.Duration(i)*time.Minute), testKey, testKeys, bytes.NewReader(copies[name]))
		if err != nil {
			t.Fatal(err)
		}
		sent[name] = got
	}
	t.Logf("%d bytes: %+v, then %+v", len(first), sent["first"], sent["second"])
	if sent["second"].New > 5 || sent["second"].Pieces < 50 || sent["second"].Bytes > sent["first"].Bytes/10 {
		t.Error("the second copy cost too much")
	}
	all, err := b.ListAll(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != "first" || all[1].Name != "second" || all[1].Revision != 7 {
		t.Fatalf("%+v, %v", all, err)
	}
	check := func(x Index) {
		t.Helper()
		var got bytes.Buffer
		if err := b.Get(t.Context(), x, testKeys, &got); err != nil || !bytes.Equal(got.Bytes(), copies[x.Name]) {
			t.Errorf("%s came back with %d bytes, %v", x.Name, got.Len(), err)
		}
	}
	check(all[0])
	check(all[1])
	if err := b.Get(t.Context(), all[0], backup.Keys{Password: "other"}, io.Discard); err == nil || !strings.Contains(err.Error(), "server token") {
		t.Errorf("with another token: %v", err)
	}
	forged := all[0]
	forged.Key = testKey[:]
	object, err := forged.encode(testKey)
	if err != nil {
		t.Fatal(err)
	}
	if forged, err = decode(object); err != nil {
		t.Fatal(err)
	}
	if err := b.Get(t.Context(), forged, testKeys, io.Discard); err == nil || !strings.Contains(err.Error(), "is not encrypted") {
		t.Errorf("a copy that anyone can have written: %v", err)
	}
	for path := range s.Files() {
		data, err := os.ReadFile(filepath.Join(s.Dir, path))
		if err != nil || bytes.Contains(data, []byte("entry 000")) {
			t.Errorf("%s can be read by everyone: %v", path, err)
		}
	}

	before := len(s.Files())
	if err := b.Delete(t.Context(), server, all[:1]); err != nil {
		t.Fatal(err)
	}
	if gone := before - len(s.Files()); gone < 2 || gone > 6 {
		t.Errorf("%d objects are gone with the first copy", gone)
	}
	check(all[1])
	if err := b.Delete(t.Context(), server, all[1:]); err != nil || len(s.Files()) != 0 {
		t.Errorf("%d objects are left without any copy, %v", len(s.Files()), err)
	}
}

// TestDamagedCopies: a copy of which anything was changed, exchanged or is missing is not taken for whole, and others are.
func TestDamagedCopies(t *testing.T) {
	s := buckets.Start(t, nil, listen(t), nil)
	b := mustOpen(t, settings(s))
	data := records(2_000)
	if _, err := b.Put(t.Context(), summary("one", 0), testKey, testKeys, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for path := range s.Files() {
		names = append(names, path)
	}
	try := func() error {
		all, err := b.List(t.Context(), server)
		if err != nil || len(all) == 0 {
			return errors.Join(err, errors.New("there is none"))
		}
		var got bytes.Buffer
		err = b.Get(t.Context(), all[0], testKeys, &got)
		if err == nil && !bytes.Equal(got.Bytes(), data) {
			t.Error("another content came back, without an error")
		}
		return err
	}
	if err := try(); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		file := filepath.Join(s.Dir, name)
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		other, err := os.ReadFile(filepath.Join(s.Dir, names[(i+1)%len(names)]))
		if err != nil {
			t.Fatal(err)
		}
		for what, changed := range map[string][]byte{
			"a bit": flip(whole, rand.IntN(len(whole))), "the first bit": flip(whole, 0), "cut": whole[:len(whole)/2], "empty": {}, "another object": other, "missing": nil,
		} {
			if changed == nil {
				err = os.Remove(file)
			} else {
				err = os.WriteFile(file, changed, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := try(); err == nil {
				t.Errorf("%s of %s was not noticed", what, name)
			}
			if err := os.WriteFile(file, whole, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := try(); err != nil {
		t.Errorf("all is as it was: %v", err)
	}
}

func flip(data []byte, at int) []byte {
	changed := bytes.Clone(data)
	changed[at] ^= 1
	return changed
}

// TestBucketErrors: each error names the thing and the fix, and what was sent in vain is of use for the next time.
func TestBucketErrors(t *testing.T) {
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/") // where a cloud would have credentials
	s := buckets.Start(t, nil, listen(t), registries.NewAuthority(t, "test"))
	put := func(c config.S3) error {
		b, err := Open(c)
		if err == nil {
			_, err = b.Put(t.Context(), summary("one", 0), testKey, testKeys, bytes.NewReader(records(100)))
		}
		return err
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, tt := range map[string]struct {
		change func(*config.S3)
		want   string
	}{
		"no name":        {func(c *config.S3) { c.Bucket = "" }, "--etcd-s3-bucket"},
		"other bucket":   {func(c *config.S3) { c.Bucket = "nothing" }, "make the bucket"},
		"other secret":   {func(c *config.S3) { c.SecretKey = "x" }, "correct --etcd-s3-access-key"},
		"other user":     {func(c *config.S3) { c.AccessKey = "x" }, "correct --etcd-s3-access-key"},
		"no credentials": {func(c *config.S3) { c.AccessKey, c.SecretKey = "", "" }, "none are given"},
		"unknown CA":     {func(c *config.S3) { c.EndpointCA = "" }, "certificate signed by unknown authority"},
		"no CA":          {func(c *config.S3) { c.EndpointCA = os.Args[0] }, "--etcd-s3-endpoint-ca"},
		"unverified":     {func(c *config.S3) { c.EndpointCA, c.SkipVerify = "", true }, ""},
		"CA of a Secret": {func(c *config.S3) { c.CA, _ = os.ReadFile(c.EndpointCA); c.EndpointCA = "" }, ""},
		"nobody there":   {func(c *config.S3) { c.Endpoint = "127.0.0.1:1" }, "connection refused"},
		"bad endpoint":   {func(c *config.S3) { c.Endpoint = "https://a b" }, "--etcd-s3-endpoint"},
		"bad proxy":      {func(c *config.S3) { c.Proxy = "nonsense" }, "--etcd-s3-proxy"},
		"silent":         {func(c *config.S3) { c.Endpoint, c.Timeout = silent.Addr().String(), time.Second }, "did not answer in 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			c := settings(s)
			tt.change(&c)
			err := put(c)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), s.Secret) {
				t.Errorf("the error has the secret: %v", err)
			}
		})
	}
	s.Stop()
	s.Serve(true)
	if err := put(config.S3(settings(s))); err == nil || !strings.Contains(err.Error(), "need the rights") {
		t.Errorf("a bucket that cannot be written: %v", err)
	}
}

// TestServerGoes: something happens to the bucket in the middle. The same call again finishes, and sends only the rest.
func TestServerGoes(t *testing.T) {
	for name, tt := range map[string]struct {
		happens func(*buckets.Server)
		mend    func(*buckets.Server)
		want    string
	}{
		"it goes away":      {(*buckets.Server).Stop, func(s *buckets.Server) { s.Serve(false) }, "connection refused"},
		"it refuses writes": {func(s *buckets.Server) { s.Stop(); s.Serve(true) }, func(s *buckets.Server) { s.Stop(); s.Serve(false) }, "need the rights"},
		"credentials end": {func(s *buckets.Server) { s.Stop(); s.Secret = "another"; s.Serve(false) }, func(s *buckets.Server) { s.Stop(); s.Secret = "of-this-test"; s.Serve(false) },
			"correct --etcd-s3-access-key"},
		"it is full": {func(s *buckets.Server) { fill(t, s.Dir) }, func(s *buckets.Server) { _ = os.Remove(filepath.Join(s.Dir, "filler")) }, "it is full"},
	} {
		t.Run(name, func(t *testing.T) {
			s := buckets.Start(t, nil, listen(t), nil)
			if err := unix.Mount("tmpfs", s.Dir, "tmpfs", 0, "size=100m"); err != nil {
				t.Skipf("mounting a small file system: %v", err)
			}
			t.Cleanup(func() { _ = unix.Unmount(s.Dir, unix.MNT_DETACH) })
			c := settings(s)
			c.Timeout = time.Minute // longer than a busy machine takes to answer, and to start a server again
			b, data := mustOpen(t, c), records(20_000)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			interrupted := &stopping{Reader: bytes.NewReader(data), after: len(data) / 2, stop: func() { tt.happens(s) }}
			_, err := b.Put(ctx, summary("one", 0), testKey, testKeys, interrupted)
			const refused = "connection refused"
			if err != nil && strings.Contains(err.Error(), refused) && tt.want != refused { // a piece was on its way while the server was started again
				_, err = b.Put(ctx, summary("one", 0), testKey, testKeys, bytes.NewReader(data))
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			tt.mend(s)
			if all, err := b.ListAll(ctx); err != nil || len(all) > 0 {
				t.Errorf("half a copy is listed: %v, %v", all, err)
			}
			sent, err := b.Put(ctx, summary("one", 0), testKey, testKeys, bytes.NewReader(data))
			if err != nil || sent.New > 3*sent.Pieces/4 {
				t.Errorf("%+v, %v", sent, err)
			}
			all, err := b.ListAll(ctx)
			if err != nil || len(all) != 1 {
				t.Fatalf("%v, %v", all, err)
			}
			if err := b.Get(ctx, all[0], testKeys, io.Discard); err != nil {
				t.Error(err)
			}
		})
	}
}

// fill fills the file system of a directory.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// stopping stops a server when half of it was read.
type stopping struct {
	io.Reader
	after int
	stop  func()
}

func (s *stopping) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b[:min(len(b), 64<<10)])
	if s.after -= n; s.after < 0 && s.stop != nil {
		s.stop()
		s.stop = nil
	}
	return n, err
}

// TestIndexes: an index says of itself only where it is, and one that a later version has written with more in it is still the same.
func TestIndexes(t *testing.T) {
	s := buckets.Start(t, nil, listen(t), nil)
	b := mustOpen(t, settings(s))
	if _, err := b.Put(t.Context(), summary("one", 0), testKey, testKeys, bytes.NewReader(records(10))); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.Dir, "edge", server.Cluster[:clusterLength], server.Node)
	whole, err := os.ReadFile(filepath.Join(dir, "one.json"))
	if err != nil {
		t.Fatal(err)
	}
	try := func(file string, object []byte) ([]Index, error) {
		if err := os.WriteFile(filepath.Join(dir, file), object, 0o600); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(filepath.Join(dir, file))
		return b.List(t.Context(), server)
	}
	for name, object := range map[string]string{
		"of another name":   string(whole),
		"of another server": strings.Replace(string(whole), `"node":"server-1"`, `"node":"server-2"`, 1),
		"with a path":       strings.Replace(string(whole), `"node":"server-1"`, `"node":"../server-1"`, 1),
		"of no format":      strings.Replace(string(whole), `"format":1`, `"format":2`, 1),
		"no index":          "{}",
	} {
		if all, err := try("two.json", []byte(object)); err == nil || len(all) != 1 || !strings.Contains(err.Error(), "two.json") {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
	x, err := decode(whole)
	if err != nil {
		t.Fatal(err)
	}
	more := append(bytes.TrimSuffix(bytes.Clone(x.file.Index), []byte("}")), `,"new":"thing"}`...)
	later, err := json.Marshal(indexFile{more, proof(testKey, more)})
	if err != nil {
		t.Fatal(err)
	}
	all, err := try("one.json", later)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	if err := b.Get(t.Context(), all[0], testKeys, io.Discard); err != nil {
		t.Errorf("one of a later version: %v", err)
	}
	mine := bytes.Replace(x.file.Index, []byte(`"revision":7`), []byte(`"revision":8`), 1)
	forged, err := json.Marshal(indexFile{mine, x.file.Proof})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := try("one.json", forged); err != nil || len(all) != 1 || b.Get(t.Context(), all[0], testKeys, io.Discard) == nil {
		t.Errorf("a changed index was taken for what was written: %v, %v", all, err)
	}
}
