package node

// bridged are the metrics of containerd and of the name server, by how their names begin, and of the gRPC by which
// containerd serves. flannel has none.
var bridged = []string{"containerd_", "coredns_", "grpc_server_"}
