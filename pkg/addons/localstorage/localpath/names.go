package localpath

// Names in the API. Those of Rancher's local-path-provisioner are the same, so that manifests for it work.
const (
	Provisioner = "rancher.io/local-path"
	// ConfigMap holds the configuration, in namespace kube-system at ConfigKey.
	ConfigMap = "local-path-config"
	ConfigKey = "config.json"

	// NodeLabel of a PersistentVolume names the node that has the directory.
	NodeLabel = "coracle.io/local-volume-node"
	// BaseAnnotation of a PersistentVolume is the configured directory that contains its directory.
	BaseAnnotation = "coracle.io/local-volume-base"
	// MountAnnotation of a PersistentVolume is the mount point of the file system that its directory is on.
	MountAnnotation = "coracle.io/local-volume-mount"
	// QuotaAnnotation of a PersistentVolume says whether its size is enforced, and by what.
	QuotaAnnotation = "coracle.io/quota"
	// PlacedAnnotation of a PersistentVolume is the node that the scheduler selected, as other provisioners write it.
	PlacedAnnotation = "local.path.provisioner/selected-node"

	// TypeAnnotation of a claim is local or hostPath. DefaultTypeAnnotation is the same for a StorageClass.
	TypeAnnotation        = "volumeType"
	DefaultTypeAnnotation = "defaultVolumeType"

	// Annotations and finalizers of Kubernetes, on claims and PersistentVolumes.
	SelectedNode    = "volume.kubernetes.io/selected-node"
	ProvisionerOf   = "volume.kubernetes.io/storage-provisioner"
	ProvisionedBy   = "pv.kubernetes.io/provisioned-by"
	VolumeFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
)
