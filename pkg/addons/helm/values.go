package helm

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/strvals"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// secrets reads a Secret in the chart's namespace; nil if there is none.
type secrets func(ctx context.Context, name string) (*corev1.Secret, error)

// secretsOf reads Secrets of a namespace from the API.
func (c *clients) secretsOf(namespace string) secrets {
	return func(ctx context.Context, name string) (*corev1.Secret, error) {
		s, err := c.core.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", name, err)
		}
		return s, nil
	}
}

// mergeValues merges the values that override the chart's own. Later ones win: those of the HelmChart and its Secrets, then
// those of the HelmChartConfig, then set. followed is the same without the values of Secrets with
// ignoreUpdates: only a change in followed causes an upgrade.
func mergeValues(ctx context.Context, chart chartSpec, config overrides, read secrets) (all, followed map[string]any, err error) {
	all, followed = map[string]any{}, map[string]any{}
	if err := checkIndices(chart.Set); err != nil {
		return nil, nil, err
	}
	for _, from := range []struct {
		what string
		overrides
	}{{"", chart.overrides}, {"HelmChartConfig: ", config}} {
		layers, err := from.layers(ctx, read)
		if err != nil {
			return nil, nil, fmt.Errorf("%s%w", from.what, err)
		}
		for _, l := range layers {
			merge(all, l.values)
			if l.follows {
				merge(followed, l.values)
			}
		}
	}
	return all, followed, errors.Join(set(chart.Set, all), set(chart.Set, followed))
}

// layer is a set of values, and whether a change of them causes an upgrade.
type layer struct {
	values  map[string]any
	follows bool
}

// layers reads the values of a HelmChart or HelmChartConfig, in order.
func (o overrides) layers(ctx context.Context, read secrets) ([]layer, error) {
	content, err := parse("valuesContent", []byte(o.ValuesContent), true)
	if err != nil {
		return nil, err
	}
	all := []layer{content, {o.Values, true}}
	keys, room := 0, mostSecretBytes
	for _, s := range o.ValuesSecrets {
		if keys += len(s.Keys); keys > mostSecretKeys {
			return nil, fmt.Errorf("valuesSecrets: there are more than %d keys", mostSecretKeys)
		}
		layers, err := s.layers(ctx, read, &room)
		if err != nil {
			return nil, err
		}
		all = append(all, layers...)
	}
	return all, nil
}

// Values are merged in the process of the control plane, whose memory these limits protect. A HelmChart may name a key of a Secret any number of times, and
// an index in set makes a list of that length.
const (
	mostSecretKeys  = 64
	mostSecretBytes = 8 << 20
	mostIndices     = 100_000 // their sum
)

// indices matches what may be an index of a list in set.
var indices = regexp.MustCompile(`\[([^\]]*)\]`)

// checkIndices returns an error if set makes lists that are too long. Helm reads more paths behind a value in braces: {a}other[1]=b.
func checkIndices(values map[string]intstr.IntOrString) error {
	sum := 0
	for path, value := range values {
		text := path
		if strings.HasPrefix(value.StrVal, "{") {
			text += value.StrVal
		}
		for _, found := range indices.FindAllStringSubmatch(text, -1) {
			if n, err := strconv.Atoi(found[1]); err == nil {
				sum += min(max(n, 0), mostIndices+1)
			}
		}
	}
	if sum > mostIndices {
		return fmt.Errorf("set: the indices of lists are %d together at most: use valuesContent", mostIndices)
	}
	return nil
}

// parse parses YAML. If quote is false, the parser's error is left out, because it may contain a secret.
func parse(what string, data []byte, quote bool) (layer, error) {
	var values map[string]any
	err := yaml.Unmarshal(data, &values)
	switch {
	case err != nil && quote:
		return layer{}, fmt.Errorf("%s is not a YAML mapping: %w", what, err)
	case err != nil:
		return layer{}, fmt.Errorf("%s is not a YAML mapping", what)
	}
	return layer{values, true}, nil
}

// layers reads the values of the Secret's keys, in order. room is how many bytes they may have, and gets what is left of it.
func (v valuesSecret) layers(ctx context.Context, read secrets, room *int) ([]layer, error) {
	secret, err := read(ctx, v.Name)
	if err != nil {
		return nil, err
	}
	if secret == nil {
		if v.IgnoreUpdates {
			return nil, nil
		}
		return nil, fmt.Errorf("valuesSecrets: there is no Secret %s", v.Name)
	}
	var out []layer
	for _, key := range v.Keys {
		data, ok := secret.Data[key]
		if !ok {
			if v.IgnoreUpdates {
				continue
			}
			return nil, fmt.Errorf("valuesSecrets: Secret %s has no key %s", v.Name, key)
		}
		if *room -= len(data); *room < 0 {
			return nil, fmt.Errorf("valuesSecrets: the values have more than %d MiB", mostSecretBytes>>20)
		}
		l, err := parse(fmt.Sprintf("valuesSecrets: key %s of Secret %s", key, v.Name), data, false)
		if err != nil {
			return nil, err
		}
		l.follows = !v.IgnoreUpdates
		out = append(out, l)
	}
	return out, nil
}

// merge merges src into dst: mappings are merged, other values replaced. null is kept, because it removes a chart's value.
func merge(dst, src map[string]any) {
	for k, v := range src {
		from, ok := v.(map[string]any)
		if !ok {
			dst[k] = v
			continue
		}
		into, ok := dst[k].(map[string]any)
		if !ok {
			into = map[string]any{}
			dst[k] = into
		}
		merge(into, from)
	}
}

// commas matches commas with the backslashes before them.
var commas = regexp.MustCompile(`\\*,`)

// typedWords are values that keep their type in any letter case, instead of becoming strings.
var typedWords = [...]string{"true", "false", "null"}

// set sets values by path in the syntax of `helm --set`, in sorted order. Numbers, true, false and null keep their type;
// other values are text, in which a comma needs no backslash. Setting the same values again changes nothing.
func set(values map[string]intstr.IntOrString, into map[string]any) error {
	for _, path := range slices.Sorted(maps.Keys(values)) {
		value := values[path]
		put, text := strvals.ParseIntoString, value.String()
		switch {
		case value.Type == intstr.Int, slices.Contains(typedWords[:], strings.ToLower(text)):
			put = strvals.ParseInto
		default:
			text = commas.ReplaceAllStringFunc(text, func(found string) string {
				if len(found)%2 == 0 { // an odd number of backslashes
					return found
				}
				return `\` + found
			})
		}
		if err := put(path+"="+text, into); err != nil {
			return fmt.Errorf("set: %s: %w", path, err)
		}
	}
	return nil
}

// hash is a keyed hash of the desired state in 40 hex digits, which fit into a label. content is the hash of the archive, if
// it is on this machine. Without the key, nobody can guess values from the hash.
func hash(key []byte, c *chart, content string, o overrides, followed map[string]any) (string, error) {
	o.Values, o.ValuesContent, o.ValuesSecrets = nil, "", nil // they are in followed
	data, err := json.Marshal(struct {
		Chart, Version, Repo, Content string
		Take                          bool
		Timeout, Driver, Retry        string
		Overrides                     overrides
		Values                        map[string]any
		Account                       string `json:",omitempty"` // a chart without one keeps the hash that it had before there were any
	}{
		c.Spec.Chart, c.Spec.Version, c.Spec.Repo, content, c.Spec.TakeOwnership,
		c.Spec.Timeout.Duration.String(), c.Spec.Driver, c.Annotations[retryAnnotation], o, followed, c.Spec.ServiceAccountName,
	})
	if err != nil {
		return "", fmt.Errorf("hashing: %w", err)
	}
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte("charts\n"))
	sum.Write(data)
	return hex.EncodeToString(sum.Sum(nil)[:20]), nil
}

// with returns the HelmChart's settings overridden by those of its HelmChartConfig.
func (o overrides) with(config overrides) overrides {
	if config.FailurePolicy != "" {
		o.FailurePolicy = config.FailurePolicy
	}
	if config.ServerSide != "" {
		o.ServerSide = config.ServerSide
	}
	o.ForceConflicts = o.ForceConflicts || config.ForceConflicts
	return o
}
