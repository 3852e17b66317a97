package devices

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// driver prepares the devices of claims.
type driver struct{ node string }

// runDriver publishes the node's devices, and serves the kubelet.
func runDriver(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(kubeletplugin.KubeletPluginsDir, "lamps.example.org"), 0o750); err != nil { // for the driver's socket
		return err
	}
	d := driver{os.Getenv("NODE")}
	helper, err := kubeletplugin.Start(ctx, d, kubeletplugin.DriverName("lamps.example.org"), kubeletplugin.NodeName(d.node),
		kubeletplugin.KubeClient(kubernetes.NewForConfigOrDie(config)))
	if err != nil {
		return err
	}
	defer helper.Stop()
	lamp := func(name, colour string) resource.Device {
		return resource.Device{Name: name, Attributes: map[resource.QualifiedName]resource.DeviceAttribute{"colour": {StringValue: &colour}}}
	}
	slice := resourceslice.Slice{Devices: []resource.Device{lamp("lamp-1", "red"), lamp("lamp-2", "green")}}
	err = helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{d.node: {Slices: []resourceslice.Slice{slice}}}})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// PrepareResourceClaims says what containers get with the devices that the scheduler chose.
func (d driver) PrepareResourceClaims(_ context.Context, claims []*resource.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	all := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var got kubeletplugin.PrepareResult
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver != "lamps.example.org" {
				continue
			}
			got.Err = describe("example.org/lamp", "LAMP", r.Device)
			got.Devices = append(got.Devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device,
				CDIDeviceIDs: []string{"example.org/lamp=" + r.Device}})
		}
		all[claim.UID] = got
	}
	return all, nil
}

// UnprepareResourceClaims has nothing to do for lamps.
func (d driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	all := map[types.UID]error{}
	for _, c := range claims {
		all[c.UID] = nil
	}
	return all, nil
}

func (d driver) HandleError(_ context.Context, err error, msg string) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", msg, err)
}

// WatchHealthStatus reports nothing: lamps do not fail.
func (d driver) WatchHealthStatus(ctx context.Context, _ chan<- kubeletplugin.DeviceHealthReport) error {
	<-ctx.Done()
	return nil
}
