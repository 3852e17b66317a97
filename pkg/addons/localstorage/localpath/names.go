package localpath

// Names in the API. Those of Rancher's local-path-provisioner are the same, so that manifests for it work.
const (
	Provisioner = "rancher.io/local-path"
	// ConfigMap holds the configuration, in namespace kube-system at ConfigKey.
	ConfigMap = "local-path-config"
	ConfigKey = "config.json"

	// NodeLabel is on every PV of ours, with the node that has the folder.
	NodeLabel = "coracle.io/local-volume-node"
	// BaseAnnotation is on a PV: the directory below which the folder is.
	BaseAnnotation = "coracle.io/local-volume-base"
	// MountAnnotation is on a PV: where the file system was mounted that the folder is on.
	MountAnnotation = "coracle.io/local-volume-mount"
	// QuotaAnnotation is on a PV: whether its size is enforced, and by what.
	QuotaAnnotation = "coracle.io/quota"
	// PlacedAnnotation is on a PV, as others write it: the node that the scheduler chose.
	PlacedAnnotation = "local.path.provisioner/selected-node"

	// TypeAnnotation is on a claim: local or hostPath. DefaultTypeAnnotation is the same on a StorageClass.
	TypeAnnotation        = "volumeType"
	DefaultTypeAnnotation = "defaultVolumeType"

	// Upstream's, on claims and PVs.
	SelectedNode    = "volume.kubernetes.io/selected-node"
	ProvisionerOf   = "volume.kubernetes.io/storage-provisioner"
	ProvisionedBy   = "pv.kubernetes.io/provisioned-by"
	VolumeFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
)
