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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// TestLeft: a folder that no volume is known of is told of, also where there are no volumes, and stays. One that any
// volume leads to is not, whoever wrote it.
func TestLeft(t *testing.T) {
	base := t.TempDir()
	folder := func(n int) localpath.Volume {
		pv := fmt.Sprintf("pvc-%08d-2222-3333-4444-555555555555", n)
		v := localpath.Volume{Base: base, Folder: pv + "_shop_data", PV: pv}
		if err := v.Create(nil); err != nil {
			t.Fatal(err)
		}
		return v
	}
	foreign := func(name, path string) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.HostPath = &corev1.HostPathVolumeSource{Path: path}
		return pv
	}
	left := folder(1)
	volumes := []runtime.Object{
		testConfig(base), foreign("static", folder(2).Path()+"/"), foreign("below", folder(3).Path()+"/sub"),
		foreign(folder(4).PV, "/moved"), foreign("beside", left.Path()+"-2"),
	}
	if got := leftOf(t, fake.NewClientset(volumes...)); len(got.Left) != 1 || got.Left[0] != left.Path() || got.Volumes != 0 {
		t.Errorf("told of %+v", got)
	}
	if _, err := os.Stat(left.Path()); err != nil {
		t.Error(err)
	}
}

// leftOf is the first thing that is told.
func leftOf(t *testing.T, client kubernetes.Interface) Volumes {
	own := kube.NewOwnNode("", "edge-1")
	own.Set(testNode())
	reports := make(chan Volumes, 1)
	s := newStorage(Options{Node: own, Report: func(v Volumes) { reports <- v }}, client)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() {}) }()
	got := <-reports
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return got
}

// TestSummary: nothing is called left while nobody says what is in use, and one size that does not hold is told of.
func TestSummary(t *testing.T) {
	base := t.TempDir()
	v := localpath.Volume{Base: base, Folder: testPV + "_shop_data", PV: testPV}
	if err := v.Create(nil); err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	client.PrependReactor("list", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("not now")
	})
	own := kube.NewOwnNode("", "edge-1")
	own.Set(testNode())
	s := newStorage(Options{Node: own}, client)
	s.dirs = []string{base}
	for i, quota := range []string{"enforced (xfs)", "not enforced: there were files before", "enforced (xfs)", ""} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Annotations: map[string]string{localpath.QuotaAnnotation: quota}}}
		pv.Spec.Local = &corev1.LocalVolumeSource{Path: fmt.Sprintf("/data/%d", i)}
		if err := s.volumes.GetStore().Add(pv); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.summary(t.Context()); len(got.Left) != 0 || got.Quota["/data"] != "not enforced: there were files before" {
		t.Errorf("told of %+v", got)
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
	reports := make(chan Volumes, 100)
	s := newStorage(Options{Node: own, Report: func(v Volumes) { reports <- v }}, client)
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
		pv, err = volumes.Get(ctx, testPV, metav1.GetOptions{})
		return err
	})
	folder := filepath.Join(base, testPV+"_shop_data")
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

func TestRestAfter(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: time.Second, 3 * time.Second: time.Minute} {
		if got := restAfter(took); got != want {
			t.Errorf("after %s it rests for %s", took, got)
		}
	}
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
