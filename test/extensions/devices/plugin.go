package devices

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugin has two devices of the resource example.org/light.
type plugin struct {
	kubelet.UnimplementedDevicePluginServer
	sick chan os.Signal
	dark atomic.Bool // the second device has failed
}

// runPlugin serves the kubelet, and each new one after it.
func runPlugin(ctx context.Context) error {
	if err := describe("example.org/light", "LIGHT", "one", "two"); err != nil {
		return err
	}
	p := &plugin{sick: make(chan os.Signal, 1)}
	signal.Notify(p.sick, syscall.SIGUSR1)
	sockets, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer sockets.Close()
	if err := sockets.Add(kubelet.DevicePluginPath); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := p.serve(ctx, sockets.Events); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// serve serves the plug-in until a new kubelet has removed the plug-in's socket and made its own.
func (p *plugin) serve(ctx context.Context, sockets <-chan fsnotify.Event) error {
	const name = "example.sock"
	socket := filepath.Join(kubelet.DevicePluginPath, name)
	_ = os.Remove(socket) // of an earlier container
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	kubelet.RegisterDevicePluginServer(server, p)
	defer server.Stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if err := register(ctx, name); err != nil {
		return err
	}
	for {
		select {
		case e := <-sockets:
			if e.Name == kubelet.KubeletSocket && e.Has(fsnotify.Create) {
				return nil
			}
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// register tells the kubelet of the plug-in.
func register(ctx context.Context, name string) error {
	conn, err := grpc.NewClient("unix://"+kubelet.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	request := &kubelet.RegisterRequest{Version: kubelet.Version, Endpoint: name, ResourceName: "example.org/light"}
	if _, err := kubelet.NewRegistrationClient(conn).Register(ctx, request, grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("registering with the kubelet: %w", err)
	}
	fmt.Println("registered with the kubelet")
	return nil
}

func (p *plugin) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return &kubelet.DevicePluginOptions{}, nil
}

// ListAndWatch says which devices there are, and again when one fails.
func (p *plugin) ListAndWatch(_ *kubelet.Empty, s grpc.ServerStreamingServer[kubelet.ListAndWatchResponse]) error {
	for {
		two := kubelet.Healthy
		if p.dark.Load() {
			two = kubelet.Unhealthy
		}
		err := s.Send(&kubelet.ListAndWatchResponse{Devices: []*kubelet.Device{{ID: "one", Health: kubelet.Healthy}, {ID: "two", Health: two}}})
		if err != nil {
			return err
		}
		select {
		case <-p.sick:
			p.dark.Store(true)
		case <-s.Context().Done():
			return nil // the kubelet has ended
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
