package manifests

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// The inventory lists the objects of each file, so that they can be deleted when the file no longer contains them, also
// after a restart. It is one ConfigMap for each file.
const (
	inventoryNamespace = "kube-system"
	inventoryPrefix    = "coracle-manifest-"
	inventoryLabel     = "coracle.io/manifest" // embedded or user
)

// record is the inventory of one file.
type record struct {
	file fileID
	// dirID identifies the directory that a user's file was in; "" if it was emptied, or if that is not known.
	dirID string
	// hash is the hash of the content, if all of it was applied; "" otherwise.
	hash    string
	objects []entry
}

// fileID identifies a file: an embedded one, or one in the directory of a server.
type fileID struct {
	name string // relative to its directory
	node string // whose directory; "" for embedded files
}

func (f fileID) embedded() bool { return f.node == "" }

// entry is an object in the inventory.
type entry struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid,omitempty"` // when it was last applied
}

// identity identifies an object. The API version does not count, because an object is served in several. An object without a
// namespace has the default one: its kind has no namespaces, or the API server adds that one.
type identity struct {
	kind            schema.GroupKind
	namespace, name string
}

func (e entry) identity() identity {
	return identity{schema.FromAPIVersionAndKind(e.APIVersion, e.Kind).GroupKind(), cmp.Or(e.Namespace, metav1.NamespaceDefault), e.Name}
}

func (e entry) String() string {
	if e.Namespace == "" {
		return e.Kind + " " + e.Name
	}
	return e.Kind + " " + e.Namespace + "/" + e.Name
}

// loadInventory returns the records of the embedded files and of one node's user files.
func loadInventory(ctx context.Context, client kubernetes.Interface, node string) (map[fileID]record, error) {
	all, err := loadRecords(ctx, client)
	for id := range all {
		if !id.embedded() && id.node != node {
			delete(all, id)
		}
	}
	return all, err
}

// loadOthers returns the objects of other servers' user files, except of servers that have no Node any more.
func loadOthers(ctx context.Context, client kubernetes.Interface, node string) (identitySet, error) {
	all, err := loadRecords(ctx, client)
	if err != nil {
		return nil, err
	}
	wanted, gone := identitySet{}, map[string]bool{"": true, node: true}
	for id, r := range all {
		if _, known := gone[id.node]; !known {
			_, err := client.CoreV1().Nodes().Get(ctx, id.node, metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("asking whether server %s still exists: %w", id.node, err)
			}
			gone[id.node] = err != nil
		}
		if !gone[id.node] {
			maps.Copy(wanted, identities(r.objects))
		}
	}
	return wanted, nil
}

func loadRecords(ctx context.Context, client kubernetes.Interface) (map[fileID]record, error) {
	list, err := client.CoreV1().ConfigMaps(inventoryNamespace).List(ctx, metav1.ListOptions{LabelSelector: inventoryLabel})
	if err != nil {
		return nil, fmt.Errorf("reading the inventory of manifests: %w", err)
	}
	out := map[fileID]record{}
	for _, item := range list.Items {
		r := record{file: fileID{item.Data["file"], item.Data["node"]}, dirID: item.Data["dir"], hash: item.Data["hash"]}
		if err := json.Unmarshal([]byte(item.Data["objects"]), &r.objects); err != nil {
			return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", inventoryNamespace, item.Name, err)
		}
		out[r.file] = r
	}
	return out, nil
}

// save writes a record. exists tells whether the ConfigMap existed when it was last read, which saves a request.
func (r record) save(ctx context.Context, client kubernetes.Interface, exists bool) error {
	objects, err := json.Marshal(r.objects)
	if err != nil {
		return fmt.Errorf("encoding the inventory of %s: %w", r.file.name, err)
	}
	kind := "user"
	if r.file.embedded() {
		kind = "embedded"
	}
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.configMap(), Namespace: inventoryNamespace, Labels: map[string]string{inventoryLabel: kind},
		},
		Data: map[string]string{"file": r.file.name, "node": r.file.node, "hash": r.hash, "objects": string(objects)},
	}
	if r.dirID != "" {
		configMap.Data["dir"] = r.dirID
	}
	inventory := client.CoreV1().ConfigMaps(inventoryNamespace)
	if exists {
		_, err = inventory.Update(ctx, configMap, metav1.UpdateOptions{})
	}
	if !exists || apierrors.IsNotFound(err) {
		_, err = inventory.Create(ctx, configMap, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) { // another server has just made it
		_, err = inventory.Update(ctx, configMap, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the inventory of %s: %w", r.file.name, err)
	}
	return nil
}

// remove deletes the record.
func (r record) remove(ctx context.Context, client kubernetes.Interface) error {
	err := client.CoreV1().ConfigMaps(inventoryNamespace).Delete(ctx, r.configMap(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the inventory of %s: %w", r.file.name, err)
	}
	return nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// configMap is the name of the record's ConfigMap: readable, and unique for each file.
func (r record) configMap() string {
	base := strings.TrimSuffix(r.file.name, ".yaml")
	readable := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(base), "-"), "-")
	if r.file.embedded() {
		return inventoryPrefix + readable
	}
	sum := sha256.Sum256([]byte(r.file.node + "\x00" + r.file.name))
	return fmt.Sprintf("%s%s-%s", inventoryPrefix, readable[:min(len(readable), 100)], hex.EncodeToString(sum[:5]))
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
