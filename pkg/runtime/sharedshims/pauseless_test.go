package sharedshims

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/coracle-dev/coracle/pkg/runtime/pauseless"
)

// store has the metadata of sandboxes as containerd's CRI plugin writes it, by their ids.
type store map[string]string

func (s store) Get(_ context.Context, id string) (containers.Container, error) {
	metadata, ok := s[id]
	if !ok {
		return containers.Container{}, errdefs.ErrNotFound
	}
	return containers.Container{Extensions: map[string]typeurl.Any{metadataExtension: &anypb.Any{Value: []byte(metadata)}}}, nil
}

func (store) List(context.Context, ...string) ([]containers.Container, error) { return nil, nil }
func (store) Create(_ context.Context, c containers.Container) (containers.Container, error) {
	return c, nil
}
func (store) Update(_ context.Context, c containers.Container, _ ...string) (containers.Container, error) {
	return c, nil
}
func (store) Delete(context.Context, string) error { return nil }

// TestPauseless: only pods whose containers do not share one pid namespace, as far as is known, go without a pause container.
func TestPauseless(t *testing.T) {
	config := func(options string) string {
		return `{"Version":"v1","Metadata":{"ID":"x","Config":{"metadata":{"name":"web"},"linux":{"security_context":{"namespace_options":` + options + `}}}}}`
	}
	for name, test := range map[string]struct {
		metadata string
		spec     *specs.Spec
		want     bool
	}{
		"own processes":         {config(`{"pid":1}`), nil, true},
		"the host's processes":  {config(`{"pid":2}`), nil, true},
		"shareProcessNamespace": {config(`{}`), nil, false},
		"another's processes":   {config(`{"pid":3}`), nil, false},
		"own users":             {config(`{"pid":1}`), &specs.Spec{Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.UserNamespace}}}}, false},
		"nothing is known":      {`{"Version":"v1","Metadata":{}}`, nil, false},
		"another version":       {strings.Replace(config(`{"pid":1}`), "v1", "v2", 1), nil, false},
		"damaged":               {`{`, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Runtime{store: store{"box": test.metadata}}
			if test.spec == nil {
				test.spec = &specs.Spec{Hostname: "web", Linux: &specs.Linux{}, Annotations: map[string]string{"a": "b"}}
			}
			spec, err := typeurl.MarshalAny(test.spec)
			if err != nil {
				t.Fatal(err)
			}
			marked := r.withoutPause(context.Background(), "box", spec)
			var got specs.Spec
			if err := json.Unmarshal(marked.GetValue(), &got); err != nil {
				t.Fatal(err)
			}
			if (got.Annotations[pauseless.Annotation] == "true") != test.want {
				t.Errorf("the annotations are %v", got.Annotations)
			}
			if got.Hostname != test.spec.Hostname || marked.GetTypeUrl() != spec.GetTypeUrl() {
				t.Errorf("the specification is %s %s", marked.GetTypeUrl(), marked.GetValue())
			}
		})
	}
}
