// Package definitions holds the CustomResourceDefinitions of the Gateway API, those of both of its channels, and installs one of them. The API server needs
// 45 to 49 MB for those of the standard channel, without their descriptions, which are left out, so they are installed on request.
package definitions

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

//go:embed standard.yaml experimental.yaml
var files embed.FS

// The channels of the Gateway API.
const (
	Standard     = "standard"
	Experimental = "experimental" // with further fields, which may change
)

// The annotations of a definition with the version of the Gateway API that it comes from, and its channel.
const (
	BundleVersion = "gateway.networking.k8s.io/bundle-version"
	Channel       = "gateway.networking.k8s.io/channel"
)

// Outcome is what an installation came to.
type Outcome struct {
	Version string   // of the definitions that coracle brings
	Kept    []string // what was left as it is, with the reason
}

// establishTimeout bounds the time until the API server serves the definitions.
const establishTimeout = time.Minute

// Install installs the definitions of a channel, and returns when the API server serves them. Newer ones stay as they are, and with the standard
// channel those of another.
func Install(ctx context.Context, client dynamic.Interface, channel string) (o Outcome, err error) {
	objects, err := read(channel)
	if err != nil {
		return o, err
	}
	for _, object := range objects {
		plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		resource := client.Resource(plural)
		o.Version = object.GetAnnotations()[BundleVersion]
		live, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
		switch {
		case err == nil:
			if why := keep(live, object); why != "" {
				o.Kept = append(o.Kept, object.GetName()+": "+why)
				continue
			}
		case !apierrors.IsNotFound(err):
			return o, fmt.Errorf("looking at %s: %w", object.GetName(), err)
		}
		if _, err := resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "coracle", Force: true}); err != nil {
			return o, fmt.Errorf("installing %s: %w", object.GetName(), err)
		}
	}
	for _, object := range objects {
		if object.GetKind() == kindDefinition {
			if err := established(ctx, client, object.GetName()); err != nil {
				return o, err
			}
		}
	}
	return o, nil
}

const kindDefinition = "CustomResourceDefinition"

// read returns the objects of a channel, the definitions before the policy that guards them.
func read(channel string) (out []*unstructured.Unstructured, err error) {
	data, err := files.ReadFile(channel + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("the Gateway API has no channel %q: %s or %s", channel, Standard, Experimental)
	}
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return nil, fmt.Errorf("reading the definitions of the Gateway API: %w", err)
		}
		out = append(out, o)
	}
	return out, nil
}

// keep returns why an object that is there stays as it is, "" if ours replaces it.
func keep(live, ours *unstructured.Unstructured) string {
	has := live.GetAnnotations()
	if c := has[Channel]; c != "" && c != Standard && c != ours.GetAnnotations()[Channel] {
		return "it is of channel " + c
	}
	there, err := version.ParseSemantic(has[BundleVersion])
	brought, ourErr := version.ParseSemantic(ours.GetAnnotations()[BundleVersion])
	if err == nil && ourErr == nil && brought.LessThan(there) {
		return "it is of the newer version " + has[BundleVersion]
	}
	return ""
}

// established returns when the API server serves a definition.
func established(ctx context.Context, client dynamic.Interface, name string) error {
	resource := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, establishTimeout, true, func(ctx context.Context) (bool, error) {
		o, err := resource.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the API server to serve %s: %w", name, err)
	}
	return nil
}
