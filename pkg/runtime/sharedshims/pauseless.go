package sharedshims

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/log"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-dev/coracle/pkg/runtime/pauseless"
)

// metadataExtension is where containerd's CRI plugin keeps what it knows of a sandbox.
const metadataExtension = "io.cri-containerd.sandbox.metadata"

// withoutPause returns the specification of a sandbox, with a request for a thread in place of a pause container if that is possible.
func (r *Runtime) withoutPause(ctx context.Context, id string, spec typeurl.Any) typeurl.Any {
	config, err := r.config(ctx, id)
	if err != nil {
		log.G(ctx).WithError(err).Warnf("sandbox %s gets a pause container", id)
		return spec
	}
	switch config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() {
	case cri.NamespaceMode_CONTAINER, cri.NamespaceMode_NODE:
	default: // the containers join the pid namespace of the pause container
		return spec
	}
	changed := &specs.Spec{}
	if err := json.Unmarshal(spec.GetValue(), changed); err != nil || !pauseless.Possible(changed) {
		return spec
	}
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[pauseless.Annotation] = "true"
	marked, err := typeurl.MarshalAny(changed)
	if err != nil {
		return spec
	}
	return marked
}

// config returns the configuration that the kubelet gave to a sandbox.
func (r *Runtime) config(ctx context.Context, id string) (*cri.PodSandboxConfig, error) {
	container, err := r.store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	extension, ok := container.Extensions[metadataExtension]
	if !ok {
		return nil, fmt.Errorf("it has no extension %s", metadataExtension)
	}
	var versioned struct {
		Version  string
		Metadata struct{ Config *cri.PodSandboxConfig }
	}
	if err := json.Unmarshal(extension.GetValue(), &versioned); err != nil {
		return nil, err
	}
	if versioned.Version != "v1" {
		return nil, fmt.Errorf("its metadata has version %q", versioned.Version)
	}
	return versioned.Metadata.Config, nil
}
