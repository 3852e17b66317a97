package helmcharts

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestDiffers(t *testing.T) {
	object := func(uid, version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: version}}
	}
	old := object("a", "1")
	for _, tt := range []struct {
		name string
		obj  any
		want bool
	}{
		{"told again", object("a", "1"), false},
		{"changed", object("a", "2"), true},
		{"another of the name", object("b", "1"), true},
	} {
		if got := differs(old, tt.obj); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
