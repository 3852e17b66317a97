package helm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/Masterminds/semver/v3"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/coracle-dev/coracle/pkg/addons/helm/chartindex"
)

// chartLayers are the media types of a packed chart; the second is the legacy one.
var chartLayers = [...]string{"application/vnd.cncf.helm.chart.content.v1.tar+gzip", "application/tar+gzip"}

// oci fetches a chart by oci://HOST/PATH[:TAG][@DIGEST] from the registry, or from its endpoints in registries.yaml.
func (a access) oci(ctx context.Context, address, version string) ([]byte, error) {
	ref, err := parseOCI(address)
	if err != nil {
		return nil, err
	}
	if err := settleTag(&ref, version); err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	endpoints, configured, err := a.endpoints(ref)
	if err != nil {
		return nil, err
	}
	if !configured {
		return from(ctx, ref, version, a.registryClient(), a.plainHTTP)
	}
	failed := make([]string, 0, len(endpoints))
	for i, e := range endpoints {
		at := registry.Reference{Registry: e.Host, Repository: e.Repository, Reference: ref.Reference}
		data, err := from(ctx, at, version, a.clientFor(e, ref.Registry, i == len(endpoints)-1), e.Scheme == "http" || e.Own && a.plainHTTP)
		if err == nil {
			return data, nil
		}
		failed = append(failed, err.Error())
	}
	return nil, fmt.Errorf("%s: %s", address, strings.Join(failed, "; "))
}

// from fetches a chart from one endpoint.
func from(ctx context.Context, ref registry.Reference, version string, client remote.Client, plainHTTP bool) ([]byte, error) {
	repository := &remote.Repository{Reference: ref, PlainHTTP: plainHTTP, Client: client, MaxMetadataBytes: limit}
	if ref.Reference == "" {
		if err := choose(ctx, repository, &ref, version); err != nil {
			return nil, fmt.Errorf("%s: %w", ref, err)
		}
	}
	described, body, err := repository.Manifests().FetchReference(ctx, ref.Reference)
	if err != nil {
		return nil, fmt.Errorf("fetching %s: %w", ref, explain(err))
	}
	data, err := read(described, body)
	if err != nil {
		return nil, fmt.Errorf("fetching %s: %w", ref, err)
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(data, &manifest); err != nil {
		return nil, fmt.Errorf("reading the manifest of %s: %w", ref, err)
	}
	for _, kind := range chartLayers {
		for _, layer := range manifest.Layers {
			if layer.MediaType != kind {
				continue
			}
			body, err := repository.Blobs().Fetch(ctx, layer)
			if err != nil {
				return nil, fmt.Errorf("fetching %s: %w", ref, err)
			}
			return read(layer, body)
		}
	}
	return nil, fmt.Errorf("%s is not a chart: it has no layer of type %s", ref, chartLayers[0])
}

// explain adds advice to the error of a registry that denies access.
func explain(err error) error {
	var answer *errcode.ErrorResponse
	if errors.Is(err, auth.ErrBasicCredentialNotFound) ||
		errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden) {
		return fmt.Errorf("the registry refuses it; check dockerRegistrySecret, authSecret or registries.yaml: %w", err)
	}
	return err
}

// parseOCI parses an address. If it has a tag and a digest, the digest counts.
func parseOCI(address string) (registry.Reference, error) {
	ref, err := registry.ParseReference(strings.TrimPrefix(address, "oci://"))
	if err != nil {
		return ref, fmt.Errorf("%s: %w", address, err)
	}
	return ref, nil
}

// settleTag sets the tag if it follows from the address and the version.
func settleTag(ref *registry.Reference, version string) error {
	if ref.ValidateReferenceAsDigest() == nil {
		return nil
	}
	tag := strings.ReplaceAll(version, "+", "_") // no tag may have a plus
	if ref.Reference != "" && version != "" && ref.Reference != tag {
		return fmt.Errorf("the address has tag %s, and version is %s", ref.Reference, version)
	}
	if _, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v")); err == nil {
		ref.Reference = tag
	}
	return nil
}

// mostTags is how many tags a repository may have to choose from.
const mostTags = 100_000

// choose sets the tag to one of the registry's that fits the version.
func choose(ctx context.Context, repository *remote.Repository, ref *registry.Reference, version string) error {
	var tags, versions []string
	err := repository.Tags(ctx, "", func(page []string) error {
		if len(tags)+len(page) > mostTags { // a registry can list for ever
			return fmt.Errorf("it has more than %d", mostTags)
		}
		for _, t := range page {
			tags = append(tags, t)
			versions = append(versions, strings.ReplaceAll(t, "_", "+"))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing its tags: %w", explain(err))
	}
	i, err := chartindex.Pick(versions, version)
	if err != nil {
		return err
	}
	ref.Reference = tags[i]
	return nil
}

// read reads content, and checks its size and digest.
func read(d ocispec.Descriptor, body io.ReadCloser) ([]byte, error) {
	defer body.Close()
	if d.Size > limit {
		return nil, fmt.Errorf("it has more than %d MiB", limit>>20)
	}
	data, err := content.ReadAll(body, d)
	if errors.Is(err, content.ErrMismatchedDigest) {
		return nil, errors.New("its digest is not what the registry said")
	}
	return data, err
}
