package helm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/coracle-dev/coracle/pkg/addons/helm/chartindex"
)

// fromRepository fetches a chart by its name and a version, a range of versions, or "" for the newest stable version.
func (a access) fromRepository(ctx context.Context, repo, name, version string) ([]byte, error) {
	base, err := url.Parse(repo)
	if err != nil || base.Host == "" || base.Scheme == "" {
		return nil, errors.New("repo is no address") // without the text, which may contain a password
	}
	entries, err := a.entries(ctx, base, name)
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, e := range entries {
		versions = append(versions, e.Version)
	}
	i, err := chartindex.Pick(versions, version)
	if err != nil {
		return nil, fmt.Errorf("chart %s of %s: %w", name, base.Redacted(), err)
	}
	chosen := entries[i]
	if len(chosen.URLs) == 0 {
		return nil, fmt.Errorf("index.yaml of %s says nowhere where %s %s is", base.Redacted(), name, chosen.Version)
	}
	at, err := chartindex.Resolve(base, chosen.URLs[0])
	if err != nil {
		return nil, fmt.Errorf("index.yaml of %s: %w", base.Redacted(), err)
	}
	if at.Scheme == "oci" {
		a.otherHost = at.Host != base.Host
		if a.otherHost && !a.loginForAllHosts {
			a.login = login{} // the repository's
		}
		return a.oci(ctx, at.String(), "")
	}
	data, err := a.download(ctx, at, base, limit)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	if want := strings.TrimPrefix(chosen.Digest, "sha256:"); want != "" && !strings.EqualFold(want, hex.EncodeToString(sum[:])) {
		return nil, fmt.Errorf("%s is not what index.yaml of its repository says: its SHA-256 differs", at.Redacted())
	}
	return data, nil
}

// entries reads the versions of a chart in a repository. Indexes are downloaded in parallel, and parsed one at a time.
func (a access) entries(ctx context.Context, base *url.URL, name string) ([]chartindex.Entry, error) {
	data, err := a.download(ctx, base.JoinPath("index.yaml"), base, indexLimit)
	if err != nil {
		return nil, err
	}
	select {
	case a.memorySlot <- struct{}{}:
		defer func() { <-a.memorySlot }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to read index.yaml of %s: %w", base.Redacted(), ctx.Err())
	}
	all, err := chartindex.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("reading index.yaml of %s: %w", base.Redacted(), err)
	}
	found, ok := all[name]
	if !ok {
		return nil, fmt.Errorf("%s has no chart %s", base.Redacted(), name)
	}
	return found, nil
}

// download fetches a file of at most so many bytes. The login is sent to the repository's own host, or everywhere.
func (a access) download(ctx context.Context, u, repo *url.URL, most int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", u.Redacted(), err)
	}
	r.Header.Set("User-Agent", "coracle-helm")
	if a.login != (login{}) && (a.loginForAllHosts || u.Scheme == repo.Scheme && u.Host == repo.Host) {
		r.SetBasicAuth(a.login.user, a.login.password)
	}
	response, err := a.client.Do(r)
	if err != nil {
		return nil, err // names the address without a password
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("%s answers %s: check authSecret", u.Redacted(), response.Status)
	default:
		return nil, fmt.Errorf("%s answers %s", u.Redacted(), response.Status)
	}
	data, err := readAll(response.Body, most)
	if err != nil {
		return nil, fmt.Errorf("downloading %s: %w", u.Redacted(), err)
	}
	return data, nil
}
