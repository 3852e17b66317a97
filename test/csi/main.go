// Command csi is a CSI driver for the tests: it uses the controller and state of Kubernetes' mock driver, with real
// volumes. A file system volume is a tmpfs of the requested size, a block volume is a loop device. It registers itself
// with the kubelet, like node-driver-registrar does for drivers that cannot.
//
// It is a module of its own, and the product links none of it. build builds it, with upstream's sidecars.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

func main() {
	name := flag.String("name", "csi.coracle.test", "the driver's `name`")
	dir := flag.String("dir", "", "the driver's `directory` below the kubelet's plugins: the socket csi.sock, and volumes")
	register := flag.String("register", "", "the kubelet's `directory` of plugins to register; none if empty")
	flag.Parse()
	if err := run(*name, *dir, *register); err != nil {
		fmt.Fprintln(os.Stderr, "csi:", err)
		os.Exit(1)
	}
}

func run(name, dir, register string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	d := newVolumes(dir, service.New(service.Config{
		DriverName: name, NodeExpansionRequired: true, PermissiveTargetPath: true, AttachLimit: 20, IO: noIO{},
	}))
	socket := filepath.Join(dir, "csi.sock")
	listener, err := listen(socket)
	if err != nil {
		return err
	}
	server := driver.NewCSIDriver(&driver.CSIDriverServers{Identity: d, Controller: d, Node: d})
	if err := server.Start(listener, d.oneAtATime); err != nil {
		return fmt.Errorf("serving the driver: %w", err)
	}
	defer server.Stop()
	if register == "" {
		<-ctx.Done()
		return nil
	}
	return serveRegistration(ctx, filepath.Join(register, name+"-reg.sock"), name, socket)
}

// listen makes a socket, and replaces one that an earlier process left.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// registrar answers the kubelet, which finds its socket in the directory of plugins.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
	refused        chan error
}

// serveRegistration answers until ctx is done, or the kubelet refuses the driver.
func serveRegistration(ctx context.Context, path, name, endpoint string) error {
	listener, err := listen(path)
	if err != nil {
		return err
	}
	r := &registrar{name: name, endpoint: endpoint, refused: make(chan error, 1)}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, r)
	go func() { r.refused <- server.Serve(listener) }()
	defer server.Stop()
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.refused:
		return err
	}
}

// GetInfo describes the driver to register.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus receives the result of the registration.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		r.refused <- fmt.Errorf("the kubelet refuses the driver: %s", s.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
