package member

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/coracle-dev/coracle/pkg/core/throttle"
)

// The member has a gRPC service of its own beside etcd's, for the process that makes backups. It does what etcd's Snapshot and HashKV do, without
// making writes wait: each message of Snapshot takes a cleared buffer of 1 MiB (gRPC's pool has none between that and 32 KiB), and its garbage
// makes the whole control plane collect; HashKV holds back all writes while it reads the database (hashByRev in etcd's storage/mvcc/kvstore.go).
// Requests and answers are JSON.
const (
	copyService  = "coracle.Copy"
	copyDatabase = "Database" // copyRequest -> nothing
	copyDigest   = "Digest"   // the revision -> Contents
)

type copyRequest struct {
	File           string `json:"file"` // to be made, on this machine
	BytesPerSecond int64  `json:"bytesPerSecond"`
}

// serveCopies adds the service to a server of clients.
func (e *Etcd) serveCopies(s *grpc.Server) {
	s.RegisterService(&grpc.ServiceDesc{ServiceName: copyService, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
		copyMethod(copyDatabase, e.copyDatabase), copyMethod(copyDigest, e.copyDigest),
	}}, e)
}

// copyMethod is a method that only processes of this machine can call, as the socket is root's: it writes files.
func copyMethod[Q, A any](name string, do func(context.Context, *embed.Etcd, Q) (A, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if from, ok := peer.FromContext(ctx); !ok || from.Addr.Network() != "unix" {
			return nil, status.Error(codes.PermissionDenied, "only for the socket of this machine")
		}
		var in wrapperspb.BytesValue
		var request Q
		if err := decode(&in); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(in.Value, &request); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		e := srv.(*Etcd)
		e.mu.Lock()
		server := e.running
		e.mu.Unlock()
		if server == nil {
			return nil, status.Error(codes.Unavailable, "etcd is starting or stopping")
		}
		answer, err := do(ctx, server, request)
		if err != nil {
			return nil, err
		}
		out, err := json.Marshal(answer)
		return wrapperspb.Bytes(out), err
	}}
}

// copyDatabase writes what etcd's Snapshot sends: the database and its SHA-256. It does not sync the file.
func (e *Etcd) copyDatabase(ctx context.Context, server *embed.Etcd, q copyRequest) (_ struct{}, err error) {
	f, err := os.OpenFile(q.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return struct{}{}, err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(q.File)
		}
	}()
	snapshot := server.Server.Backend().Snapshot()
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	sum := sha256.New()
	w := &endable{ctx, server.Server.StoppingNotify(), io.MultiWriter(throttle.At(q.BytesPerSecond).Writer(f), sum)}
	if _, err := snapshot.WriteTo(w); err != nil {
		return struct{}{}, err
	}
	_, err = f.Write(sum.Sum(nil))
	return struct{}{}, err
}

// endable is a writer that fails when ctx is done or the member stops, which waits for those who read its database.
type endable struct {
	ctx      context.Context
	stopping <-chan struct{}
	to       io.Writer
}

func (w *endable) Write(p []byte) (int, error) {
	select {
	case <-w.stopping:
		return 0, errors.New("etcd stops")
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	default:
		return w.to.Write(p)
	}
}

// copyDigest returns what the member holds at a revision.
func (e *Etcd) copyDigest(ctx context.Context, server *embed.Etcd, revision int64) (Contents, error) {
	_, then, err := life{Etcd: e, server: server}.digests(ctx, revision)
	if err == nil && then == nil {
		err = fmt.Errorf("it has forgotten revision %d: try again", revision)
	}
	if err != nil {
		return Contents{}, err
	}
	return then.contents(), nil
}

// call calls a method of the running member's service.
func call(ctx context.Context, socket, method string, request, answer any) error {
	return callAt(ctx, "unix://"+socket, method, request, answer)
}

func callAt(ctx context.Context, target, method string, request, answer any) error {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	in, err := json.Marshal(request)
	if err != nil {
		return err
	}
	var out wrapperspb.BytesValue
	switch err := conn.Invoke(ctx, "/"+copyService+"/"+method, wrapperspb.Bytes(in), &out); status.Code(err) {
	case codes.OK:
		return json.Unmarshal(out.Value, answer)
	case codes.Unimplemented:
		return errors.New("the server that runs is of an older version than this program: restart it, or use the program of that version")
	default:
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return errors.New(status.Convert(err).Message())
	}
}
