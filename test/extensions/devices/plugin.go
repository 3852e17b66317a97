package devices

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugin has two devices of the resource example.org/light.
type plugin struct {
	kubelet.UnimplementedDevicePluginServer
	sick chan os.Signal
}

// runPlugin serves the plug-in, and tells the kubelet of it.
func runPlugin(ctx context.Context) error {
	if err := describe("example.org/light", "LIGHT", "one", "two"); err != nil {
		return err
	}
	const name = "example.sock"
	socket := filepath.Join(kubelet.DevicePluginPath, name)
	_ = os.Remove(socket) // of an earlier container
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	p := &plugin{sick: make(chan os.Signal, 1)}
	signal.Notify(p.sick, syscall.SIGUSR1)
	server := grpc.NewServer()
	kubelet.RegisterDevicePluginServer(server, p)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	context.AfterFunc(ctx, server.Stop)
	conn, err := grpc.NewClient("unix://"+kubelet.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = kubelet.NewRegistrationClient(conn).Register(ctx, &kubelet.RegisterRequest{Version: kubelet.Version, Endpoint: name, ResourceName: "example.org/light"})
	if err != nil {
		return fmt.Errorf("registering with the kubelet: %w", err)
	}
	return <-ended
}

func (p *plugin) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return &kubelet.DevicePluginOptions{}, nil
}

// ListAndWatch says which devices there are, and again when one fails.
func (p *plugin) ListAndWatch(_ *kubelet.Empty, s grpc.ServerStreamingServer[kubelet.ListAndWatchResponse]) error {
	two := kubelet.Healthy
	for {
		err := s.Send(&kubelet.ListAndWatchResponse{Devices: []*kubelet.Device{{ID: "one", Health: kubelet.Healthy}, {ID: "two", Health: two}}})
		if err != nil {
			return err
		}
		select {
		case <-p.sick:
			two = kubelet.Unhealthy
		case <-s.Context().Done():
			return nil // the kubelet has ended. A plug-in for production registers again when its socket is back
		}
	}
}

// Allocate says what a container gets with the devices that the kubelet chose.
func (p *plugin) Allocate(_ context.Context, r *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	answer := &kubelet.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		one := &kubelet.ContainerAllocateResponse{}
		for _, id := range c.DevicesIds {
			one.CdiDevices = append(one.CdiDevices, &kubelet.CDIDevice{Name: "example.org/light=" + id})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}
