package servicelb

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/addon"
)

// gatewaysPath is where the API has the Gateways of all namespaces.
const gatewaysPath = "/apis/gateway.networking.k8s.io/v1/gateways"

// gatewayAddresses returns the addresses that Gateways have for themselves, with their names, as they are now.
func gatewayAddresses(ctx context.Context, client kubernetes.Interface) (map[netip.Addr]string, error) {
	out := map[netip.Addr]string{}
	direct := client.Discovery().RESTClient()
	if direct == nil { // of a client in a test
		return out, nil
	}
	data, err := direct.Get().AbsPath(gatewaysPath).Do(ctx).Raw()
	if apierrors.IsNotFound(err) { // the cluster has no such kind
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing Gateways: %w", err)
	}
	var list struct {
		Items []struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Status   struct {
				Addresses []struct {
					Value string `json:"value"`
				} `json:"addresses"`
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("reading Gateways: %w", err)
	}
	for _, g := range list.Items {
		var values []string
		for _, a := range g.Status.Addresses {
			values = append(values, a.Value)
		}
		for _, a := range addon.Own(g.Status.Conditions, values) {
			out[a] = g.Metadata.Namespace + "/" + g.Metadata.Name
		}
	}
	return out, nil
}
