package member

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// The number of applied log entries that are kept in memory for slower members. A member that is further behind gets the whole database.
// A member that starts alone needs few; members that join it later get the database, which is only slower.
const (
	catchUpAlone  = 100
	catchUpOthers = 5000
)

// config returns the configuration of a member that starts a cluster or has data.
func (e *Etcd) config(fatal chan<- error) (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name = e.Name
	cfg.Dir = e.Dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger(logrus.StandardLogger(), fatal))
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: e.Socket}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	// OpenPeers serves peers. Until then the URL of the first member is only its identity, and must not depend on addresses of the host.
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:2380"}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.InitialClusterToken = rand.Text() // makes the ID of each cluster different
	cfg.PeerTLSInfo = e.TLS.info()

	// The check would delay a server for 5 s after another one has joined. Learners do not affect the quorum, and package members checks
	// the quorum before it removes a member.
	cfg.StrictReconfigCheck = false
	cfg.TickMs, cfg.ElectionMs = 100, 1000
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 2000, catchUpAlone
	gates := "CompactHashCheck=true" // members compare their data after each compaction
	if e.hadPeers() {
		cfg.SnapshotCatchUpEntries = catchUpOthers
		gates += ",InitialCorruptCheck=true"
	}
	// Acknowledged writes are in the log. The database may be written in larger steps, which writes less to the disk, since each step writes five pages for
	// one key: after a crash etcd replays the log from the state of the database. The limit bounds the size of a step.
	cfg.BackendBatchInterval, cfg.BackendBatchLimit = 30*time.Second, 1000
	cfg.UnsafeNoFsync = e.Volatile
	cfg.EnableGRPCGateway = false
	cfg.UserHandlers = map[string]http.Handler{databasePath: http.HandlerFunc(e.sendDatabase)}
	cfg.WarningApplyDuration = 500 * time.Millisecond // a start on two busy cores has dozens of 100 ms
	// kube-apiserver has one connection for each of about 70 kinds, nearly all of them idle.
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{
		grpc.ReadBufferSize(8 << 10), grpc.SharedWriteBuffer(true), grpc.ChainUnaryInterceptor(e.endLostWrites, e.noteDefragment),
		grpc.StreamInterceptor(e.holdStreams), // before etcd's own
	}
	return cfg, e.override(cfg, gates)
}
