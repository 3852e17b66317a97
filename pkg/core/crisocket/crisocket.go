// Package crisocket connects to the container runtime of this node.
package crisocket

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// MaxMessage is how many bytes an answer of the runtime may have. The list of pods has all their annotations, a quarter of a megabyte for each pod, and
// that of containers their ports: with gRPC's 4 MiB the pods of one namespace would keep a node from starting.
const MaxMessage = 256 << 20

// Dial makes a client of the runtime at a socket. It connects with the first call.
func Dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage)))
	if err != nil {
		return nil, fmt.Errorf("dialing CRI: %w", err)
	}
	return conn, nil
}
