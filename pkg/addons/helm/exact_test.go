package helm

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestExact: values have the same types on both sides.
func TestExact(t *testing.T) {
	values, _, err := mergeValues(t.Context(), spec(t, `{valuesContent: "float: 1\nlist: [1, {deep: 1.5}, null]\ntext: '1'"}`), overrides{}, stored{}.read)
	if err != nil {
		t.Fatal(err)
	}
	if err := set(map[string]intstr.IntOrString{"int": intstr.FromInt32(1), "list[3]": intstr.FromInt32(-7)}, values); err != nil {
		t.Fatal(err)
	}
	values["large"], values["larger"], values["nothing"] = int64(math.MaxInt64), 1e300, map[string]any{}
	data, err := json.Marshal(exact(values))
	if err != nil {
		t.Fatal(err)
	}
	var got exact
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(map[string]any(got), values) {
		t.Errorf("got %#v, want %#v", got, values)
	}
	if _, ok := got["int"].(int64); !ok {
		t.Errorf("an integer is a %T", got["int"])
	}
	if _, ok := got["float"].(float64); !ok {
		t.Errorf("a float is a %T", got["float"])
	}
}
