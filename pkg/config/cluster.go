package config

// ClusterSettings are the settings that all machines of a cluster share, by flag name, as one would type them. The
// first server writes them; everybody who joins takes them from the cluster.
type ClusterSettings map[string]string
