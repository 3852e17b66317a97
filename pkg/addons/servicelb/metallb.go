package servicelb

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// metalLBNamespace is the namespace of the IPAddressPools that MetalLB, and so coracle, heeds.
const metalLBNamespace = "metallb-system"

// retryPools is how often it is looked whether the cluster has IPAddressPools, until it has.
const retryPools = 5 * time.Second

// It is tried for tryPools, and again after retryUnknown if it is not known.
const (
	tryPools     = 5 * time.Second
	retryUnknown = 500 * time.Millisecond
)

// pool is a set of addresses, from the configuration or from an IPAddressPool.
type pool struct {
	config.Pool
	// avoidBuggy leaves out IPv4 addresses that end with .0 or .255.
	avoidBuggy bool
	// priority orders the pools: the smallest first, 0 last.
	priority int64
	// restricted pools are for Services of the namespaces, if there are any, that match one of the selectors, if there are any.
	restricted bool
	namespaces []string
	selectors  []labels.Selector
}

// admits reports whether a Service may have addresses of a pool.
func (p *pool) admits(s *corev1.Service) bool {
	if !p.restricted {
		return true
	}
	inNamespace := len(p.namespaces) == 0 || slices.Contains(p.namespaces, s.Namespace)
	return inNamespace && (len(p.selectors) == 0 || slices.ContainsFunc(p.selectors, func(l labels.Selector) bool { return l.Matches(labels.Set(s.Labels)) }))
}

// Pools are where pools come from.
type Pools struct {
	Fixed []config.Pool
	// MetalLB says that IPAddressPools count too.
	MetalLB bool
	// Barred are the ranges of pods and Services, and VIPs the addresses of the API, which no Service gets.
	Barred []netip.Prefix
	VIPs   []netip.Addr

	objects cache.Store
}

// poolsOf returns the pools of a configuration.
func poolsOf(cfg config.Config) Pools {
	return Pools{
		Fixed: cfg.Network.Pools, MetalLB: cfg.Network.MetalLB, VIPs: cfg.API.VIPs,
		Barred: slices.Concat(cfg.Network.ClusterCIDRs, cfg.Network.ServiceCIDRs),
	}
}

// none reports whether there can be no pool.
func (p *Pools) none() bool { return len(p.Fixed) == 0 && !p.MetalLB }

// follow follows IPAddressPools until ctx is done, if they count, and calls changed after each change. It returns when they are known, or the cluster has
// none; then it looks for them now and then.
func (p *Pools) follow(ctx context.Context, kubeconfig string, changed func()) error {
	if !p.MetalLB {
		return nil
	}
	rest, err := kube.Config(kubeconfig)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(rest)
	if err != nil {
		return err
	}
	kind := schema.GroupVersionResource{Group: "metallb.io", Version: "v1beta1", Resource: "ipaddresspools"}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, kind, metalLBNamespace, 0, nil, nil).Informer()
	kube.QuietWhenGone(informer)
	p.objects = informer.GetStore()
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // it fails only after the informer is stopped
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	})
	exist := func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, tryPools)
		defer cancel()
		_, err := client.Resource(kind).Namespace(metalLBNamespace).List(ctx, metav1.ListOptions{Limit: 1})
		return poolsExist(err)
	}
	there, err := exist()
	for err != nil { // without the pools that there may be, a plan would take addresses away
		if lifecycle.Sleep(ctx, retryUnknown) != nil {
			return nil
		}
		there, err = exist()
	}
	if there {
		go informer.RunWithContext(ctx)
		cache.WaitFor(ctx, "", informer.HasSyncedChecker())
		return nil
	}
	go func() {
		for there := false; !there; there, _ = exist() {
			if lifecycle.Sleep(ctx, retryPools) != nil {
				return
			}
		}
		informer.RunWithContext(ctx)
	}()
	return nil
}

// poolsExist says by the error of a list whether the cluster has IPAddressPools; an error says that it is not known.
func poolsExist(err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// current returns the pools, in the order in which they are used.
func (p *Pools) current() (all []pool) {
	for _, fixed := range p.Fixed {
		all = append(all, pool{Pool: fixed})
	}
	if p.objects == nil {
		return all
	}
	var theirs []pool
	for _, obj := range p.objects.List() {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok || slices.ContainsFunc(p.Fixed, func(f config.Pool) bool { return f.Name == u.GetName() }) {
			continue
		}
		one, err := parsePool(u)
		if err != nil {
			logrus.WithField("component", "servicelb").WithError(err).Warnf("IPAddressPool %s is not used", u.GetName())
			continue
		}
		theirs = append(theirs, one)
	}
	slices.SortFunc(theirs, func(a, b pool) int {
		last := func(n int64) int64 { return cmp.Or(n, 1<<62) }
		return cmp.Or(cmp.Compare(last(a.priority), last(b.priority)), strings.Compare(a.Name, b.Name))
	})
	return append(all, theirs...)
}

// addressPool is the part of an IPAddressPool that is heeded.
type addressPool struct {
	Spec struct {
		Addresses         []string `json:"addresses"`
		AutoAssign        *bool    `json:"autoAssign"`
		AvoidBuggyIPs     bool     `json:"avoidBuggyIPs"`
		ServiceAllocation *struct {
			Priority           int64                  `json:"priority"`
			Namespaces         []string               `json:"namespaces"`
			NamespaceSelectors []metav1.LabelSelector `json:"namespaceSelectors"`
			ServiceSelectors   []metav1.LabelSelector `json:"serviceSelectors"`
		} `json:"serviceAllocation"`
	} `json:"spec"`
}

// parsePool reads an IPAddressPool. One that asks for what is not supported is refused, rather than used for Services that it is not for.
func parsePool(u *unstructured.Unstructured) (pool, error) {
	var in addressPool
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &in); err != nil {
		return pool{}, err
	}
	p := pool{Pool: config.Pool{Name: u.GetName(), Manual: in.Spec.AutoAssign != nil && !*in.Spec.AutoAssign}, avoidBuggy: in.Spec.AvoidBuggyIPs}
	for _, text := range in.Spec.Addresses {
		r, err := config.ParseRange(strings.TrimSpace(text))
		if err != nil {
			return pool{}, fmt.Errorf("%q %w", text, err)
		}
		p.Ranges = append(p.Ranges, r)
	}
	if only := in.Spec.ServiceAllocation; only != nil {
		if len(only.NamespaceSelectors) > 0 {
			return pool{}, fmt.Errorf("coracle does not support namespaceSelectors: list namespaces")
		}
		p.restricted, p.priority, p.namespaces = true, only.Priority, only.Namespaces
		for i := range only.ServiceSelectors {
			selector, err := metav1.LabelSelectorAsSelector(&only.ServiceSelectors[i])
			if err != nil {
				return pool{}, err
			}
			p.selectors = append(p.selectors, selector)
		}
	}
	return p, nil
}
