package registries

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Push pushes an image to the registry under a name without the registry, such as "team/app:1", through the registry's
// own API and as its first user.
func (r *Registry) Push(name string, img Image) {
	r.t.Helper()
	repository, tag, _ := strings.Cut(name, ":")
	r.must(r.push(repository, tag, img, img.target))
}

// push pushes the blobs of a descriptor, then the descriptor; without a tag it gets only its digest as name.
func (r *Registry) push(repository, tag string, img Image, desc ocispec.Descriptor) error {
	data, ok := img.blobs[desc.Digest]
	if !ok {
		return fmt.Errorf("the archive lacks %s", desc.Digest)
	}
	var refers struct {
		Manifests []ocispec.Descriptor
		Config    *ocispec.Descriptor
		Layers    []ocispec.Descriptor
	}
	if err := json.Unmarshal(data, &refers); err != nil {
		return err
	}
	for _, child := range refers.Manifests {
		if err := r.push(repository, child.Digest.String(), img, child); err != nil {
			return err
		}
	}
	blobs := refers.Layers
	if refers.Config != nil {
		blobs = append(blobs, *refers.Config)
	}
	for _, blob := range blobs {
		if err := r.pushBlob(repository, blob.Digest, img.blobs[blob.Digest]); err != nil {
			return err
		}
	}
	_, err := r.do(http.MethodPut, r.URL+"/v2/"+repository+"/manifests/"+tag, desc.MediaType, data)
	return err
}

func (r *Registry) pushBlob(repository string, sum digest.Digest, data []byte) error {
	at, err := r.do(http.MethodPost, r.URL+"/v2/"+repository+"/blobs/uploads/", "", nil)
	if err != nil {
		return err
	}
	separator := "?"
	if strings.Contains(at, "?") {
		separator = "&"
	}
	_, err = r.do(http.MethodPut, at+separator+"digest="+sum.String(), "application/octet-stream", data)
	return err
}

// do makes a request and returns the Location header of the answer.
func (r *Registry) do(method, url, contentType string, body []byte) (location string, err error) {
	if r.opts.Clients != nil || r.opts.Tokens != nil {
		return "", errors.New("push to a registry that shares the storage and wants no certificate or token")
	}
	transport := &http.Transport{DialContext: r.host.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: r.opts.TLS.pool()}}
	client := http.Client{Transport: transport, Timeout: 20 * time.Second}
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", contentType)
	for name, password := range r.opts.Users {
		req.SetBasicAuth(name, password)
		break
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		said, _ := io.ReadAll(resp.Body)
		return "", fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, said)
	}
	return resp.Header.Get("Location"), nil
}
