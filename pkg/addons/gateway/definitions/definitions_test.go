package definitions

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/coracle-dev/coracle/test/golden"
)

// TestFromModule: the definitions are those of the module in go.mod, without descriptions. -update renews them.
func TestFromModule(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, channel := range []string{Standard, Experimental} {
		golden.Check(t, channel+".yaml", fromModule(t, strings.TrimSpace(string(dir)), channel))
	}
}

func fromModule(t *testing.T, module, channel string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(module, "config/crd", channel, "gateway.networking.k8s.io_*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v %v", files, err)
	}
	var documents []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
			var object map[string]any
			if err := yaml.Unmarshal(document, &object); err != nil {
				t.Fatal(err)
			}
			if len(object) == 0 {
				continue
			}
			delete(object, "status")
			small, err := yaml.Marshal(undescribed(object, false))
			if err != nil {
				t.Fatal(err)
			}
			documents = append(documents, string(small))
		}
	}
	return strings.Join(documents, "---\n")
}

// undescribed returns a part of a definition without descriptions. Below properties, the keys are names of fields.
func undescribed(part any, names bool) any {
	switch part := part.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range part {
			if _, isText := value.(string); isText && key == "description" && !names {
				continue
			}
			out[key] = undescribed(value, key == "properties" && !names)
		}
		return out
	case []any:
		out := make([]any, 0, len(part))
		for _, one := range part {
			out = append(out, undescribed(one, false))
		}
		return out
	}
	return part
}

// TestRead: the channels are those of the API, and no other file is read.
func TestRead(t *testing.T) {
	for channel, known := range map[string]bool{Standard: true, Experimental: true, "nonsense": false, "": false, "../definitions/standard": false} {
		objects, err := read(channel)
		if known && (err != nil || len(objects) == 0) || !known && (err == nil || !strings.Contains(err.Error(), "standard or experimental")) {
			t.Errorf("channel %q: %d objects, %v", channel, len(objects), err)
		}
	}
}

// TestKeep: definitions that are newer than ours stay, and those of another channel than the standard one if ours are of that.
func TestKeep(t *testing.T) {
	of := func(version, of string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetAnnotations(map[string]string{BundleVersion: version, Channel: of})
		return o
	}
	for _, c := range []struct {
		version, channel, ours string
		kept                   bool
	}{
		{"v1.5.0", Standard, Standard, false}, {"v1.6.3", Standard, Standard, false}, {"v1.7.0", Standard, Standard, true}, {"v1.5.0", Experimental, Standard, true}, {"", "", Standard, false},
		{"v1.6.3", Standard, Experimental, false}, {"v1.5.0", Experimental, Experimental, false}, {"v1.7.0", Standard, Experimental, true},
	} {
		if why := keep(of(c.version, c.channel), of("v1.6.3", c.ours)); (why != "") != c.kept {
			t.Errorf("%+v: %q", c, why)
		}
	}
}

// TestHint: only an error for a kind and version that the definitions bring leads to them.
func TestHint(t *testing.T) {
	const format = `resource mapping not found for name: "web" namespace: "" from "gateway.yaml": no matches for kind "%s" in version "%s"` + "\nensure CRDs are installed first"
	for _, c := range []struct {
		kind, version string
		hint          bool
	}{
		{"HTTPRoute", "gateway.networking.k8s.io/v1", true},
		{"ReferenceGrant", "gateway.networking.k8s.io/v1beta1", true},
		{"HTTPRoute", "gateway.networking.k8s.io/v1alpha2", false}, // not in the standard channel
		{"HTTPRout", "gateway.networking.k8s.io/v1", false},
		{"Certificate", "cert-manager.io/v1", false},
		{"HTTPRoute", "gateway.networking.k8s.io.example.com/v1", false},
	} {
		got := Hint(fmt.Sprintf(format, c.kind, c.version))
		if strings.Contains(got, "'coracle gateway-api'") != c.hint || got != "" != c.hint {
			t.Errorf("%s of %s: %q", c.kind, c.version, got)
		}
	}
	if Hint(fmt.Sprintf(format+"\n"+format, "Certificate", "cert-manager.io/v1", "Gateway", "gateway.networking.k8s.io/v1")) == "" {
		t.Error("no hint for the second of two errors")
	}
}
