package localstorage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/coracle-dev/coracle/pkg/kube"
	"github.com/coracle-dev/coracle/pkg/localpath"
	"github.com/coracle-dev/coracle/pkg/state"
)

func testNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", Labels: map[string]string{corev1.LabelHostname: "edge-1"}}}
}

func testClaim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	class := "local-path"
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop", UID: types.UID("1"), Annotations: map[string]string{
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
	return controller.ProvisionOptions{StorageClass: class, PVName: "pvc-1", PVC: claim, SelectedNodeName: "edge-1"}
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
		"default":     {nil, nil, "/data/pvc-1_shop_data", true},
		"RWOP":        {func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = corev1.ReadWriteOncePod }, nil, "/data/pvc-1_shop_data", true},
		"RWX":         {func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = corev1.ReadWriteMany }, nil, "ReadWriteOnce or ReadWriteOncePod, not ReadWriteMany", false},
		"selector":    {func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }, nil, "remove spec.selector", false},
		"data source": {func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = &corev1.TypedLocalObjectReference{} }, nil, "remove spec.dataSource", false},
		"hostPath":    {func(c *corev1.PersistentVolumeClaim) { c.Annotations["volumeType"] = "HostPath" }, nil, "/data/pvc-1_shop_data", false},
		"hostPath by class, local by claim": {func(c *corev1.PersistentVolumeClaim) { c.Annotations["volumeType"] = "local" },
			func(c *storagev1.StorageClass) { c.Annotations = map[string]string{"defaultVolumeType": "hostPath"} }, "/data/pvc-1_shop_data", true},
		"other type": {func(c *corev1.PersistentVolumeClaim) { c.Annotations["volumeType"] = "nfs" }, nil, `not "nfs"`, false},
		"mount options of hostPath": {func(c *corev1.PersistentVolumeClaim) { c.Annotations["volumeType"] = "hostPath" },
			func(c *storagev1.StorageClass) { c.MountOptions = []string{"ro"} }, "know no mountOptions", false},
		"pattern":           {nil, parameter("pathPattern", "{{.PVC.Namespace}}/{{.PVC.Name}}"), "/data/shop/data", true},
		"pattern of others": {nil, parameter("pathPattern", "all"), "does not begin with shop/data/", false},
		"path":              {nil, parameter("nodePath", "/data"), "/data/pvc-1_shop_data", true},
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
			pv := p.pv(p.volume("/data"), "enforced (xfs)")
			if pathOf(pv) != c.want || (pv.Spec.Local != nil) != c.local {
				t.Errorf("got %+v, want %s", pv.Spec.PersistentVolumeSource, c.want)
			}
			if v, err := folderOf(pv); err != nil || v != p.volume("/data") {
				t.Errorf("the PV leads back to %+v, %v", v, err)
			}
		})
	}
}

// TestReschedule tells errors of the node from errors of the claim.
func TestReschedule(t *testing.T) {
	own := kube.NewOwnNode("", "edge-1")
	own.Set(testNode())
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
			p := &provisioner{client: fake.NewClientset(c.config), node: own}
			_, got, err := p.Provision(t.Context(), testOptions(testClaim(), c.class))
			if err == nil || got != c.want || !strings.HasPrefix(err.Error(), "node edge-1: ") {
				t.Errorf("%s, %v; want %s", got, err, c.want)
			}
		})
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
	own := kube.NewOwnNode("", "edge-1")
	own.Set(testNode())
	p := &provisioner{client: fake.NewClientset(testClass(), class("mine", "edge-1"), class("other", "edge-2")), node: own}
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

// TestLife runs the component against a server that is a map: a claim gets a folder, and loses it.
func TestLife(t *testing.T) {
	base := filepath.Join(t.TempDir(), "storage")
	own := kube.NewOwnNode("", "edge-1")
	own.Set(testNode())
	foreign := testClaim(func(c *corev1.PersistentVolumeClaim) {
		c.Name, c.UID, c.Annotations[localpath.SelectedNode] = "foreign", "2", "edge-2"
	})
	client := fake.NewClientset(testConfig(base), testClass(), foreign)
	reports := make(chan state.LocalVolumes, 100)
	s, err := newStorage(Options{Node: own, Report: func(v state.LocalVolumes) { reports <- v }}, client)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() { ended <- s.Run(ctx, func() { close(ready) }) }()
	defer func() { stop(); <-ended }()
	<-ready
	select {
	case <-s.used:
		t.Error("it is at work for another node's claim")
	default:
	}
	claims, volumes := client.CoreV1().PersistentVolumeClaims("shop"), client.CoreV1().PersistentVolumes()
	if _, err := claims.Create(ctx, testClaim(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var pv *corev1.PersistentVolume
	eventually(t, func() (err error) {
		pv, err = volumes.Get(ctx, "pvc-1", metav1.GetOptions{})
		return err
	})
	folder := filepath.Join(base, "pvc-1_shop_data")
	if info, err := os.Stat(folder); err != nil || pv.Spec.Local.Path != folder || info.Mode().Perm() != 0o777 {
		t.Errorf("the volume is %s: %v", pv.Spec.Local.Path, err)
	}
	if list, _ := volumes.List(ctx, metav1.ListOptions{}); len(list.Items) != 1 {
		t.Errorf("volumes: %v", list.Items)
	}
	var stacks [1 << 20]byte
	if all := string(stacks[:goruntime.Stack(stacks[:], true)]); strings.Contains(all, "slowset.(*SlowSet).Run") || !strings.Contains(all, "runClaimWorker") {
		t.Errorf("the library wakes up all the time: see quiet\n%s", all)
	}
	pv.Status.Phase = corev1.VolumeReleased
	if _, err := volumes.UpdateStatus(ctx, pv, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is still there: %v", folder, err)
		}
		return nil
	})
	eventually(t, func() error {
		select {
		case v := <-reports:
			if v.Volumes == 1 {
				return nil
			}
		default:
		}
		return errors.New("nobody was told of the volume")
	})
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	err := check()
	for deadline := time.Now().Add(30 * time.Second); err != nil; err = check() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestFilter(t *testing.T) {
	mine := func(obj runtime.Object) bool {
		claim, ok := obj.(*corev1.PersistentVolumeClaim)
		return ok && isMine(claim, "edge-1")
	}
	other := testClaim(func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, localpath.SelectedNode) })
	source := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 10})
	for _, e := range []watch.Event{
		{Type: watch.Added, Object: testClaim()}, {Type: watch.Added, Object: other}, {Type: watch.Modified, Object: testClaim()},
		{Type: watch.Modified, Object: other}, {Type: watch.Deleted, Object: testClaim()}, {Type: watch.Bookmark, Object: other},
		{Type: watch.Error, Object: &metav1.Status{}},
	} {
		source.Action(e.Type, e.Object)
	}
	f := filter(source, mine)
	for _, want := range []watch.EventType{watch.Added, watch.Deleted, watch.Modified, watch.Deleted, watch.Deleted, watch.Bookmark, watch.Error} {
		if e := <-f.ResultChan(); e.Type != want {
			t.Errorf("got %s, want %s", e.Type, want)
		}
	}
	source.Action(watch.Added, other) // nobody takes it
	f.Stop()
	f.Stop()
	for range f.ResultChan() { // it ends
	}
}
