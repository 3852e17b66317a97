package localstorage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/fsquota"
	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// provisioner implements the library's interface.
type provisioner struct {
	client  kubernetes.Interface
	node    *kube.OwnNode
	volumes cache.Store
	// folders is locked while a directory is created, or checked and put aside, because a pathPattern can give a new claim the
	// directory of a volume that is being removed.
	folders sync.Mutex
}

// ShouldProvision reports whether the scheduler or the class has selected this node for a claim.
func (p *provisioner) ShouldProvision(ctx context.Context, claim *corev1.PersistentVolumeClaim) bool {
	here, err := p.waitsHere(ctx, claim)
	return err == nil && here
}

// waitsHere reports whether a claim waits for a volume on this node.
func (p *provisioner) waitsHere(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if !isUnassigned(claim) || claim.Spec.StorageClassName == nil {
		return isMine(claim, p.node.Name), nil
	}
	class, err := p.client.StorageV1().StorageClasses().Get(ctx, *claim.Spec.StorageClassName, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("reading the class of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	node, _ := p.node.Get()
	return node != nil && kube.OnlyNode(class) == hostname(node), nil
}

// ShouldDelete reports whether a volume is on this node.
func (p *provisioner) ShouldDelete(_ context.Context, pv *corev1.PersistentVolume) bool {
	return pv.Labels[localpath.NodeLabel] == p.node.Name
}

// Provision creates the directory of a claim.
func (p *provisioner) Provision(ctx context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	pv, err := p.provision(ctx, o)
	var other elsewhere
	switch {
	case err == nil:
		return pv, controller.ProvisioningFinished, nil
	case errors.As(err, &other) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS):
		return nil, controller.ProvisioningReschedule, fmt.Errorf("node %s: %w", p.node.Name, err)
	}
	return nil, controller.ProvisioningFinished, fmt.Errorf("node %s: %w", p.node.Name, err)
}

func (p *provisioner) provision(ctx context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, error) {
	node, _ := p.node.Get()
	if node == nil {
		return nil, errors.New("the node is not registered")
	}
	config, err := readConfig(ctx, p.client)
	if err != nil {
		return nil, err
	}
	plan, err := newPlan(o, config, node)
	if err != nil {
		return nil, err
	}
	p.folders.Lock()
	defer p.folders.Unlock()
	if plan.bases, err = p.present(plan.bases); err != nil {
		return nil, err
	}
	v, err := plan.choose()
	if err != nil {
		return nil, err
	}
	if err := p.overlaps(v); err != nil {
		return nil, err
	}
	size := o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]
	limit := &limit{base: v.Base, name: o.PVName, bytes: uint64(size.Value())}
	if err := v.Create(limit.set); err != nil {
		return nil, err
	}
	mount, err := localpath.MountOf(v.Base)
	if err != nil {
		return nil, err
	}
	return plan.pv(v, mount, limit.quota), nil
}

// overlaps returns an error if the directory of a volume would contain that of another volume, or be inside it, which is
// possible with the pathPatterns of two classes.
func (p *provisioner) overlaps(v localpath.Volume) error {
	for _, obj := range p.volumes.List() {
		other, ok := obj.(*corev1.PersistentVolume)
		if !ok || other.Name == v.PV || filepath.Clean(kube.VolumePath(other)) == v.Path() {
			continue
		}
		if path := kube.VolumePath(other); within(path, v.Path()) || within(v.Path(), path) {
			return fmt.Errorf("the volume would be at %s, and volume %s is at %s: no volume can be in another, so change the pathPattern", v.Path(), other.Name, path)
		}
	}
	return nil
}

// choose returns the volume in the base where it exists already, else where the folder of an earlier claim is, which a pathPattern names, else in the
// base with the most free space.
func (p plan) choose() (localpath.Volume, error) {
	for _, base := range p.bases {
		if v := p.volume(base); v.Exists() {
			return v, nil
		}
	}
	for _, base := range p.bases {
		if info, err := os.Lstat(filepath.Join(base, p.folder)); err == nil && info.IsDir() {
			return p.volume(base), nil
		}
	}
	type room struct {
		base string
		free uint64
	}
	var rooms []room
	var errs []error
	for _, base := range p.bases {
		free, err := localpath.Free(base)
		errs = append(errs, err)
		if err == nil {
			rooms = append(rooms, room{base, free})
		}
	}
	if len(rooms) == 0 {
		return localpath.Volume{}, errors.Join(errs...)
	}
	most := slices.MaxFunc(rooms, func(a, b room) int { return cmp.Compare(a.free, b.free) })
	return p.volume(most.base), nil
}

// limit sets the quota of a directory, if its file system has quotas.
type limit struct {
	base, name string
	bytes      uint64
	quota      string // the annotation for the PersistentVolume
}

func (l *limit) set(dir *os.File, empty bool) error {
	fs, err := fsquota.Open(l.base)
	if err != nil {
		return err
	}
	defer fs.Close()
	l.quota = fs.String()
	switch {
	case !fs.Enforced():
		return nil
	case empty:
		return fs.Limit(dir, l.name, l.bytes)
	}
	if err := fs.Resize(dir, l.bytes); err != nil {
		l.quota = "not enforced: there were files before"
	}
	return nil
}

// readConfig reads the configuration for each volume, so that edits take effect at once without a watch.
func readConfig(ctx context.Context, client kubernetes.Interface) (localpath.Config, error) {
	object, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, localpath.ConfigMap, metav1.GetOptions{})
	if err != nil {
		return localpath.Config{}, fmt.Errorf("reading ConfigMap %s: %w", localpath.ConfigMap, err)
	}
	config, err := localpath.Parse([]byte(object.Data[localpath.ConfigKey]))
	if err != nil {
		return config, fmt.Errorf("ConfigMap kube-system/%s, %s: %w", localpath.ConfigMap, localpath.ConfigKey, err)
	}
	return config, nil
}
