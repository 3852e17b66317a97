package localstorage

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

const (
	testUID = "11111111-2222-3333-4444-555555555555"
	testPV  = "pvc-" + testUID
)

func testNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", Labels: map[string]string{corev1.LabelHostname: "edge-1"}}}
}

func testProvisioner(client kubernetes.Interface) *provisioner {
	own := kube.NewOwnNode("", "edge-1")
	own.Set(testNode())
	return &provisioner{client: client, node: own, volumes: cache.NewStore(cache.MetaNamespaceKeyFunc)}
}

func testClaim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	class := "local-path"
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop", UID: testUID, Annotations: map[string]string{
			localpath.SelectedNode: "edge-1", localpath.ProvisionerOf: localpath.Provisioner,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func testClass(change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	mode, keep := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete
	c := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "local-path"}, Provisioner: localpath.Provisioner, VolumeBindingMode: &mode, ReclaimPolicy: &keep,
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func testConfig(paths ...string) *corev1.ConfigMap {
	text := fmt.Sprintf(`{"nodePathMap":[{"node":"edge-1","paths":["%s"]}]}`, strings.Join(paths, `","`))
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: localpath.ConfigMap, Namespace: "kube-system"}, Data: map[string]string{localpath.ConfigKey: text}}
}

func testOptions(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) controller.ProvisionOptions {
	return controller.ProvisionOptions{StorageClass: class, PVName: testPV, PVC: claim, SelectedNodeName: "edge-1"}
}

func TestPlan(t *testing.T) {
	type claim = func(*corev1.PersistentVolumeClaim)
	type class = func(*storagev1.StorageClass)
	parameter := func(name, value string) class {
		return func(c *storagev1.StorageClass) { c.Parameters = map[string]string{name: value} }
	}
	for name, c := range map[string]struct {
		claim claim
		class class
		want  string // path, or part of the error
		local bool
	}{
		"default":     {nil, nil, "/data/" + testPV + "_shop_data", true},
		"RWOP":        {func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = corev1.ReadWriteOncePod }, nil, "/data/" + testPV + "_shop_data", true},
		"RWX":         {func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = corev1.ReadWriteMany }, nil, "ReadWriteOnce or ReadWriteOncePod, not ReadWriteMany", false},
		"selector":    {func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }, nil, "remove spec.selector", false},
		"data source": {func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = &corev1.TypedLocalObjectReference{} }, nil, "remove spec.dataSource", false},
		"hostPath":    {func(c *corev1.PersistentVolumeClaim) { c.Annotations["volumeType"] = "HostPath" }, nil, "/data/" + testPV + "_shop_data", false},
		"hostPath by class, local by claim": {func(c *corev1.PersistentVolumeClaim) { c.Annotations["volumeType"] = "local" },
			func(c *storagev1.StorageClass) { c.Annotations = map[string]string{"defaultVolumeType": "hostPath"} }, "/data/" + testPV + "_shop_data", true},
		"other type": {func(c *corev1.PersistentVolumeClaim) { c.Annotations["volumeType"] = "nfs" }, nil, `not "nfs"`, false},
		"mount options of hostPath": {func(c *corev1.PersistentVolumeClaim) { c.Annotations["volumeType"] = "hostPath" },
			func(c *storagev1.StorageClass) { c.MountOptions = []string{"ro"} }, "know no mountOptions", false},
		"pattern":           {nil, parameter("pathPattern", "{{.PVC.Namespace}}/{{.PVC.Name}}"), "/data/shop/data", true},
		"pattern of others": {nil, parameter("pathPattern", "all"), "does not begin with shop/data/", false},
		"path":              {nil, parameter("nodePath", "/data"), "/data/" + testPV + "_shop_data", true},
		"path of others":    {nil, parameter("nodePath", "/other"), "is /other, and this node has /data", false},
		"unknown parameter": {nil, parameter("fsType", "ext4"), `parameter "fsType"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := localpath.Parse([]byte(testConfig("/data").Data[localpath.ConfigKey]))
			if err != nil {
				t.Fatal(err)
			}
			claim, class := testClaim(), testClass()
			if c.claim != nil {
				c.claim(claim)
			}
			if c.class != nil {
				c.class(class)
			}
			p, err := newPlan(testOptions(claim, class), config, testNode())
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			pv := p.pv(p.volume("/data"), "/", "enforced (xfs)")
			if kube.VolumePath(pv) != c.want || (pv.Spec.Local != nil) != c.local {
				t.Errorf("got %+v, want %s", pv.Spec.PersistentVolumeSource, c.want)
			}
			if kind := pv.Spec.HostPath; kind != nil && *kind.Type != corev1.HostPathDirectory {
				t.Errorf("the kubelet may make the folder: %s", *kind.Type)
			}
			if v, err := folderOf(pv); err != nil || v != p.volume("/data") {
				t.Errorf("the PV leads back to %+v, %v", v, err)
			}
		})
	}
}

// TestReschedule tells errors of the node from errors of the claim.
func TestReschedule(t *testing.T) {
	for name, c := range map[string]struct {
		config *corev1.ConfigMap
		class  *storagev1.StorageClass
		want   controller.ProvisioningState
	}{
		"no path here":  {testConfigText(`{"nodePathMap":[{"node":"edge-1","paths":[]}]}`), testClass(), controller.ProvisioningReschedule},
		"not listed":    {testConfigText(`{"nodePathMap":[]}`), testClass(), controller.ProvisioningReschedule},
		"read-only":     {testConfig("/proc/sys/volumes"), testClass(), controller.ProvisioningFinished},
		"broken":        {testConfigText(`{`), testClass(), controller.ProvisioningFinished},
		"shared":        {testConfigText(`{"sharedFileSystemPath":"/nfs"}`), testClass(), controller.ProvisioningFinished},
		"bad parameter": {testConfig("/data"), testClass(func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"x": ""} }), controller.ProvisioningFinished},
	} {
		t.Run(name, func(t *testing.T) {
			p := testProvisioner(fake.NewClientset(c.config))
			_, got, err := p.Provision(t.Context(), testOptions(testClaim(), c.class))
			if err == nil || got != c.want || !strings.HasPrefix(err.Error(), "node edge-1: ") {
				t.Errorf("%s, %v; want %s", got, err, c.want)
			}
		})
	}
}

// TestSameFolder: a claim that gets the folder of a volume which is being removed has a folder in the end.
func TestSameFolder(t *testing.T) {
	class := testClass(func(c *storagev1.StorageClass) {
		c.Parameters = map[string]string{"pathPattern": "{{.PVC.Namespace}}/{{.PVC.Name}}"}
	})
	for range 100 {
		base := t.TempDir()
		old := localpath.Volume{Base: base, Folder: "shop/data", PV: "pvc-0"}
		if err := old.Create(nil); err != nil {
			t.Fatal(err)
		}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: old.PV}}
		pv.Spec.Local = &corev1.LocalVolumeSource{Path: old.Path()}
		pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase = corev1.PersistentVolumeReclaimDelete, corev1.VolumeReleased
		p := testProvisioner(fake.NewClientset(pv, testConfig(base)))
		var both sync.WaitGroup
		both.Go(func() { _ = p.Delete(t.Context(), pv) }) // it refuses if the other was first
		var made error
		both.Go(func() {
			for range 2 { // shop may go just then
				if _, made = p.provision(t.Context(), testOptions(testClaim(), class)); made == nil {
					break
				}
			}
		})
		both.Wait()
		if _, err := os.Stat(old.Path()); err != nil || made != nil {
			t.Fatalf("there is no folder: %v, %v", err, made)
		}
	}
}

// TestOverlap: no volume is made in another one, nor around it.
func TestOverlap(t *testing.T) {
	base := t.TempDir()
	for path, bad := range map[string]bool{
		"/shop": true, "/shop/data/pvc-9": true, "/shop/data": false, "/shop/database": false, "/" + testPV + "_shop_data": false,
	} {
		p := testProvisioner(fake.NewClientset(testConfig(base)))
		if err := p.volumes.Add(released("pvc-9", base+path)); err != nil {
			t.Fatal(err)
		}
		_, err := p.provision(t.Context(), testOptions(testClaim(), testClass(func(c *storagev1.StorageClass) {
			c.Parameters = map[string]string{"pathPattern": "{{.PVC.Namespace}}/{{.PVC.Name}}"}
		})))
		if bad != (err != nil) || err != nil && !strings.Contains(err.Error(), "volume pvc-9 is at "+base+path+": no volume can be in another") {
			t.Errorf("%s: %v", path, err)
		}
		if bad && exists(released("x", base+"/shop")) {
			t.Errorf("%s: the folder was made", path)
		}
		if err := os.RemoveAll(base + "/shop"); err != nil {
			t.Fatal(err)
		}
	}
}

func testConfigText(text string) *corev1.ConfigMap {
	c := testConfig()
	c.Data[localpath.ConfigKey] = text
	return c
}

// TestClassChooses: of claims that the scheduler was not asked about, a node takes those whose class means it alone.
func TestClassChooses(t *testing.T) {
	class := func(name, node string) *storagev1.StorageClass {
		return testClass(func(c *storagev1.StorageClass) {
			c.Name, c.VolumeBindingMode = name, nil
			c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelHostname, Values: []string{node}}}}}
		})
	}
	p := testProvisioner(fake.NewClientset(testClass(), class("mine", "edge-1"), class("other", "edge-2")))
	for name, want := range map[string]bool{"mine": true, "other": false, "local-path": false, "none": false} {
		claim := testClaim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName = &name
			delete(c.Annotations, localpath.SelectedNode)
		})
		if got := p.ShouldProvision(t.Context(), claim); got != want {
			t.Errorf("class %s: %v", name, got)
		}
	}
}
