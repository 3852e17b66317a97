package localstorage

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/fsquota"
	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
)

// growing is a claim that has 1Gi and asks for more, its volume, and who makes it larger.
func growing(t *testing.T, wanted, volume string, limit error) (*expander, *fake.Clientset, *[]uint64) {
	t.Helper()
	claim := testClaim(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = testPV
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(wanted)
		c.Status.Phase = corev1.ClaimBound
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	})
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: testPV, Annotations: map[string]string{localpath.BaseAnnotation: "/data"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(volume)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data/" + testPV + "_shop_data"}},
		},
	}
	client := fake.NewClientset(claim, pv)
	var limits []uint64
	e := &expander{
		client: client, volumes: cache.NewStore(cache.MetaNamespaceKeyFunc),
		claims: cache.NewSharedIndexInformer(nil, &corev1.PersistentVolumeClaim{}, 0, cache.Indexers{}),
		resize: func(v localpath.Volume, bytes uint64) error {
			if v.Path() != "/data/"+testPV+"_shop_data" {
				t.Errorf("resizes %+v", v)
			}
			limits = append(limits, bytes)
			return limit
		},
	}
	if err := errors.Join(e.claims.GetStore().Add(claim), e.volumes.Add(pv)); err != nil {
		t.Fatal(err)
	}
	return e, client, &limits
}

func TestExpand(t *testing.T) {
	refused := fmt.Errorf("%w: ext4 without project quotas", fsquota.ErrNotEnforced)
	failed := errors.New("reading the project without project quotas: input/output error")
	for name, c := range map[string]struct {
		wanted, volume string
		limit          error
		limits         int
		claimHas       string
		volumeHas      string
	}{
		"larger":             {"2Gi", "1Gi", nil, 1, "2Gi", "2Gi"},
		"crash after volume": {"2Gi", "2Gi", nil, 0, "2Gi", "2Gi"},
		"as it was":          {"1Gi", "1Gi", nil, 0, "1Gi", "1Gi"},
		"larger already":     {"2Gi", "4Gi", nil, 0, "4Gi", "4Gi"},
		"not enforced":       {"2Gi", "1Gi", refused, 1, "1Gi", "1Gi"},
		"fails for now":      {"2Gi", "1Gi", failed, 1, "1Gi", "1Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			e, client, limits := growing(t, c.wanted, c.volume, c.limit)
			if err := e.handle(t.Context(), "shop/data"); errors.Is(err, failed) != (c.limit == failed) || err != nil && c.limit != failed { //nolint:errorlint // the same
				t.Fatal(err)
			}
			claim, err := client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			pv, err := client.CoreV1().PersistentVolumes().Get(t.Context(), testPV, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := claim.Status.Capacity.Storage().String(); got != c.claimHas {
				t.Errorf("the claim has %s, want %s", got, c.claimHas)
			}
			if got := pv.Spec.Capacity.Storage().String(); got != c.volumeHas || len(*limits) != c.limits {
				t.Errorf("the volume has %s after limits %v, want %s", got, *limits, c.volumeHas)
			}
			reason := map[error]string{refused: "QuotaNotEnforced", failed: "ResizeFailed"}[c.limit]
			if all := claim.Status.Conditions; len(all) > 0 && all[0].Reason != reason {
				t.Errorf("the reason is %s, want %s", all[0].Reason, reason)
			}
			said := len(claim.Status.Conditions) == 1 && strings.Contains(claim.Status.Conditions[0].Message, "without project quotas")
			if said != (c.limit != nil) {
				t.Errorf("conditions: %+v", claim.Status.Conditions)
			}
		})
	}
}

// TestConcerns: claims that were bound without the scheduler can grow, and those of other provisioners take no memory.
func TestConcerns(t *testing.T) {
	const ours, other = localpath.Provisioner, "csi.example.com"
	for name, c := range map[string]struct {
		provisioner, node, volume string
		want                      bool
	}{
		"of this node":                      {ours, "a", "", true},
		"of another node":                   {ours, "b", "pvc-1", false},
		"waits for any node":                {ours, "", "", true},
		"of a class that binds at once":     {ours, "", "pvc-1", true},
		"names its volume":                  {"", "", "pvc-1", true},
		"of another provisioner":            {other, "a", "pvc-1", false},
		"of another one that binds at once": {other, "", "pvc-1", false},
		"waits for somebody":                {"", "", "", false},
	} {
		claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: c.volume}}
		claim.Annotations = map[string]string{localpath.SelectedNode: c.node, localpath.ProvisionerOf: c.provisioner}
		maps.DeleteFunc(claim.Annotations, func(_, value string) bool { return value == "" })
		if got := concerns(claim, "a"); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
