// Package chartindex reads index.yaml of a repository of charts. It links no Kubernetes, so that it can be fuzzed.
package chartindex

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"
)

// Entry is the needed part of what an index, which can be huge, says about a version of a chart.
type Entry struct {
	Version string   `json:"version"`
	URLs    []string `json:"urls"`
	Digest  string   `json:"digest"`
}

// Parse returns the versions of each chart.
func Parse(data []byte) (map[string][]Entry, error) {
	var index struct {
		Entries map[string][]Entry `json:"entries"`
	}
	err := yaml.Unmarshal(data, &index)
	return index.Entries, err
}

// Resolve resolves an address in an index, which may be relative to the repository.
func Resolve(base *url.URL, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("an address in it is none")
	}
	if u.IsAbs() {
		return u, nil
	}
	directory := *base
	directory.Path = strings.TrimSuffix(directory.Path, "/") + "/"
	directory.RawPath = ""
	at := directory.ResolveReference(u)
	at.RawQuery = base.RawQuery // some repositories want a token in each request
	return at, nil
}

// Pick returns the index of the wanted version: the same text, or else the newest version in a range.
func Pick(versions []string, want string) (int, error) {
	best, found := -1, (*semver.Version)(nil)
	asked := want
	if want == "" {
		asked = "*" // leaves versions like 2.0.0-rc.1 out
	}
	constraint, err := semver.NewConstraint(asked)
	if err != nil {
		return 0, fmt.Errorf("version %s is neither a version nor a range: %w", want, err)
	}
	for i, text := range versions {
		if text == want {
			return i, nil
		}
		v, err := semver.NewVersion(text)
		if err == nil && constraint.Check(v) && (found == nil || v.GreaterThan(found)) {
			best, found = i, v
		}
	}
	switch {
	case best >= 0:
		return best, nil
	case want == "":
		return 0, errors.New("there is no stable version; set version to have another")
	}
	return 0, fmt.Errorf("there is no version %s", want)
}
