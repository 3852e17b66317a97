package rekey

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
	"github.com/coracle-dev/coracle/pkg/etcd/rekeyrequest"
)

// edit has the changes to objects.
type edit struct {
	formerCA, ca string
	addresses    map[string]string
	machines     map[string]string
	codec        *protobuf.Serializer
	// secrets decrypts with the former cluster's keys and encrypts with the new one's; nil if nothing is encrypted.
	secrets value.Transformer
}

func newEdit(r rekeyrequest.Request, ca []byte) *edit {
	e := &edit{formerCA: strings.TrimSpace(string(r.CA)), ca: strings.TrimSpace(string(ca)), addresses: map[string]string{}, machines: r.Machines}
	for former, now := range r.Addresses {
		e.addresses[former.String()] = now.String()
	}
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		utilruntime.Must(add(types)) // it fails only for conflicting types
	}
	e.codec = protobuf.NewSerializer(types, types)
	return e
}

// protobufMark is what objects of built-in types begin with in etcd.
var protobufMark = []byte("k8s\x00")

// stored returns the new form of a value in etcd, which may be encrypted, nil if it does not change.
func (e *edit) stored(ctx context.Context, key string, data []byte) ([]byte, error) {
	if e.secrets == nil || !encryption.IsEncrypted(data) {
		return e.object(key, data)
	}
	about := value.DefaultContext(key)
	plain, stale, err := e.secrets.TransformFromStorage(ctx, data, about)
	if err != nil {
		return nil, err
	}
	changed, err := e.object(key, plain)
	switch {
	case err != nil:
		return nil, err
	case changed == nil && !stale:
		return nil, nil
	case changed == nil:
		changed = plain
	}
	return e.secrets.TransformToStorage(ctx, changed, about)
}

// object returns the new form of a value, nil if it does not change.
func (e *edit) object(key string, value []byte) ([]byte, error) {
	key = strings.TrimPrefix(key, Prefix)
	switch {
	case encryption.IsEncrypted(value):
		return nil, errors.New("it is encrypted with a key of the former cluster")
	case bytes.HasPrefix(value, protobufMark) && e.concerns(key, value):
		return e.typed(key, value)
	case bytes.HasPrefix(value, []byte("{")):
		return e.custom(value)
	}
	return nil, nil
}

// concerns reports whether a value may have to change. It is faster than decoding the value.
func (e *edit) concerns(key string, value []byte) bool {
	kind, _, _ := strings.Cut(key, "/")
	return slices.Contains([]string{"minions", "pods", "endpointslices"}, kind) || key == "namespaces/kube-system" || strings.HasPrefix(key, claims) ||
		bytes.Contains(value, []byte(e.formerCA)) || bytes.Contains(value, []byte(corev1.SecretTypeServiceAccountToken))
}

// typed changes an object of a built-in type.
func (e *edit) typed(key string, value []byte) ([]byte, error) {
	object, _, err := e.codec.Decode(value, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return e.foreign(value)
	}
	if err != nil {
		return nil, err
	}
	before := object.DeepCopyObject()
	switch o := object.(type) {
	case *corev1.Namespace:
		if key == "namespaces/kube-system" { // its UID identifies the cluster
			o.UID = uuid.NewUUID()
		}
	case *corev1.Secret:
		if o.Type == corev1.SecretTypeServiceAccountToken { // a controller makes a new token
			delete(o.Data, corev1.ServiceAccountTokenKey)
		}
	case *corev1.Node:
		e.node(o)
	case *corev1.Pod:
		stopPod(o)
	case *discoveryv1.EndpointSlice:
		stopEndpoints(o)
	case *coordinationv1.Lease:
		if machine := e.machines[endpoint.ClaimedBy(o.Name)]; machine != "" && strings.HasPrefix(key, claims) {
			o.Spec.HolderIdentity = &machine
			o.Labels, o.Annotations, o.Finalizers = nil, nil, nil // the former authority's certificates, which were revoked, are worthless
		}
	}
	e.walk(reflect.ValueOf(object))
	if reflect.DeepEqual(before, object) {
		return nil, nil
	}
	var out bytes.Buffer
	if err := e.codec.Encode(object, &out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// foreign handles types that client-go does not know. It fails if the object contains the former authority, which cannot be replaced in
// protobuf without the type, because its length differs.
func (e *edit) foreign(value []byte) ([]byte, error) {
	if !bytes.Contains(value, []byte(e.formerCA)) {
		return nil, nil
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(value[len(protobufMark):]); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("an object of kind %s holds the former cluster's authority, and coracle does not know that kind", unknown.Kind)
}

// node replaces the addresses of a Node, so that no request goes to the former ones.
func (e *edit) node(n *corev1.Node) {
	for i, a := range n.Status.Addresses {
		if now, ok := e.addresses[a.Address]; ok {
			n.Status.Addresses[i].Address = now
		}
	}
	for name, text := range n.Annotations {
		if addr, err := netip.ParseAddr(text); err == nil && e.addresses[addr.String()] != "" {
			n.Annotations[name] = e.addresses[addr.String()]
		}
	}
}

// custom changes a custom resource, which is stored as JSON.
func (e *edit) custom(value []byte) ([]byte, error) {
	changed := value
	for _, form := range []func(pem string) ([]byte, error){
		func(pem string) ([]byte, error) { // a text
			quoted, err := json.Marshal(pem)
			return bytes.Trim(quoted, `"`), err
		},
		func(pem string) ([]byte, error) { return json.Marshal([]byte(pem + "\n")) }, // bytes
		func(pem string) ([]byte, error) { return json.Marshal([]byte(pem)) },
	} {
		former, err := form(e.formerCA)
		if err != nil {
			return nil, err
		}
		now, err := form(e.ca)
		if err != nil {
			return nil, err
		}
		changed = bytes.ReplaceAll(changed, former, now)
	}
	if bytes.Equal(changed, value) {
		return nil, nil
	}
	return changed, nil
}

// walk replaces the former authority in all texts and bytes of a value.
func (e *edit) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			e.walk(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				e.walk(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			e.bytes(v)
			return
		}
		for i := range v.Len() {
			e.walk(v.Index(i))
		}
	case reflect.Map:
		e.mapped(v)
	case reflect.String:
		if v.CanSet() {
			v.SetString(strings.ReplaceAll(v.String(), e.formerCA, e.ca))
		}
	}
}

func (e *edit) bytes(v reflect.Value) {
	if v.CanSet() && bytes.Contains(v.Bytes(), []byte(e.formerCA)) {
		v.SetBytes(bytes.ReplaceAll(v.Bytes(), []byte(e.formerCA), []byte(e.ca)))
	}
}

// mapped is walk for a map, whose values cannot be changed in place.
func (e *edit) mapped(v reflect.Value) {
	for _, key := range v.MapKeys() {
		changed := reflect.New(v.Type().Elem()).Elem()
		changed.Set(v.MapIndex(key))
		e.walk(changed)
		v.SetMapIndex(key, changed)
	}
}
