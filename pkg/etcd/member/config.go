package member

import (
	"crypto/rand"
	"net/url"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// catchUp is how many entries of the log that were applied are kept in memory for members that lag behind. One that
// lags further gets the whole database instead. A member that starts alone has nobody to keep them for; if others join
// later, that is still right, only slower.
const (
	catchUpAlone  = 100
	catchUpOthers = 5000
)

// config is what etcd is started with, for a member that begins a cluster or has data.
func (e *Etcd) config(fatal chan<- error) (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name = e.Name
	cfg.Dir = e.Dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger(logrus.StandardLogger(), fatal))
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: e.Socket}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	// Peers are served by OpenPeers. The first member's URL is only its identity until then, and must not depend on
	// addresses of the host.
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:2380"}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.InitialClusterToken = rand.Text() // so that no two clusters have the same ID
	cfg.PeerTLSInfo = e.TLS.info()

	// The check would let a server wait for five seconds because another has just joined. Learners do no harm to the
	// quorum; who removes members looks after it (package members).
	cfg.StrictReconfigCheck = false
	cfg.TickMs, cfg.ElectionMs = 100, 1000
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 2000, catchUpAlone
	gates := "CompactHashCheck=true" // members compare their data after each compaction
	if e.hadPeers() {
		cfg.SnapshotCatchUpEntries = catchUpOthers
		gates += ",InitialCorruptCheck=true"
	}
	// What was acknowledged is in the log. The database may follow in larger steps, which writes less: after a crash
	// the log is read from where the database is. The limit keeps a step short when there is much to write.
	cfg.BackendBatchInterval, cfg.BackendBatchLimit = 5*time.Second, 1000
	cfg.UnsafeNoFsync = e.Volatile
	cfg.EnableGRPCGateway = false
	cfg.WarningApplyDuration = 500 * time.Millisecond // on two busy cores a start has dozens of a tenth of a second
	// kube-apiserver has one connection for each of some seventy kinds, nearly all of them idle.
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{
		grpc.ReadBufferSize(8 << 10), grpc.SharedWriteBuffer(true), grpc.ChainUnaryInterceptor(e.endLostWrites),
		grpc.StreamInterceptor(e.holdStreams), // before etcd's own
	}
	return cfg, e.override(cfg, gates)
}
