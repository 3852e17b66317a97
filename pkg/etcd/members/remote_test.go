package members

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
)

// api is another server, which refuses or answers.
func api(t *testing.T, refusal string) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != join.PathMembers || len(r.TLS.PeerCertificates) > 1 {
			http.NotFound(w, r)
			return
		}
		if refusal != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(join.Refusal{Message: refusal})
			return
		}
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode([]join.Member{{ID: "1", Name: "n1"}})
			return
		}
		var m join.AddMember
		_ = json.NewDecoder(r.Body).Decode(&m)
		_ = json.NewEncoder(w).Encode(join.AddedMember{ID: "2", InitialCluster: m.Name + "=" + m.PeerURL})
	}))
	t.Cleanup(server.Close)
	return server
}

// pair writes a server's certificate as everybody's: httptest has one.
func pair(t *testing.T, server *httptest.Server) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	der, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: server.Certificate().Raw}, key: {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestRemote(t *testing.T) {
	good, busy := api(t, ""), api(t, "etcd takes one new member at a time, and n3 is still catching up")
	cert, key := pair(t, good)
	address := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	for _, c := range []struct {
		name    string
		servers []string
		err     string
	}{
		{"one answers", []string{"127.0.0.1:1", address(busy), address(good)}, ""},
		{"none knows", nil, "no other server is known"},
		{"all refuse", []string{address(busy)}, address(busy) + ": etcd takes one new member at a time, and n3"},
		{"none is there", []string{"127.0.0.1:1"}, "127.0.0.1:1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Remote{Servers: func() []string { return c.servers }, CA: cert, Cert: cert, Key: key}
			added, err := r.AddMember(t.Context(), join.AddMember{Name: "n2", PeerURL: "https://192.0.2.2:2380"})
			members, listErr := r.Members(t.Context())
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || listErr == nil {
					t.Errorf("got %v and %v, not %q", err, listErr, c.err)
				}
				return
			}
			if err != nil || added.InitialCluster != "n2=https://192.0.2.2:2380" || listErr != nil || len(members) != 1 {
				t.Errorf("got %+v, %v, %+v, %v", added, err, members, listErr)
			}
		})
	}
}

func TestInitialCluster(t *testing.T) {
	got := initialCluster([]*pb.Member{
		{ID: 1, Name: "n1", PeerURLs: []string{"https://192.0.2.1:2380"}}, {ID: 2, PeerURLs: []string{"https://192.0.2.2:2380"}},
		{ID: 0xabc, PeerURLs: []string{"https://192.0.2.3:2380"}},
	}, 2, "n2")
	if want := "n1=https://192.0.2.1:2380,n2=https://192.0.2.2:2380,abc=https://192.0.2.3:2380"; got != want {
		t.Errorf("got %s, not %s", got, want)
	}
}

func TestAlarms(t *testing.T) {
	members := []MemberStatus{{Member: join.Member{ID: "ff", Name: "n1"}}}
	got := alarms([]string{"etcdserver: no leader", "memberID:255 alarm:NOSPACE", "memberID:16  alarm:CORRUPT "}, members)
	want := []Alarm{{Member: "n1", ID: "ff", Kind: "NOSPACE"}, {Member: "10", ID: "10", Kind: "CORRUPT"}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v", got)
	}
}

func TestCheck(t *testing.T) {
	for _, bad := range []join.AddMember{
		{}, {Name: "n2"}, {Name: "n2", PeerURL: "http://192.0.2.2:2380"}, {Name: "n2", PeerURL: "https://192.0.2.2"},
		{Name: "a=b", PeerURL: "https://192.0.2.2:2380"},
	} {
		if check(bad) == nil {
			t.Errorf("%+v passes", bad)
		}
	}
	if err := check(join.AddMember{Name: "n2", PeerURL: "https://[2001:db8::2]:2380"}); err != nil {
		t.Error(err)
	}
}
