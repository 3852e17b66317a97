package config

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Profile is a set of settings that meet a benchmark.
type Profile string

// The profiles. ProfileCIS meets what the CIS Kubernetes Benchmark leaves to administrators, too.
const (
	ProfileStandard Profile = "standard"
	ProfileCIS      Profile = "cis"
)

// PodLevel is a level of the Pod Security Standards.
type PodLevel string

// The levels, from the one that permits everything.
const (
	PodPrivileged PodLevel = "privileged"
	PodBaseline   PodLevel = "baseline"
	PodRestricted PodLevel = "restricted"
)

// Security is what the machines of a cluster have in common to contain pods and clients.
type Security struct {
	Profile Profile `json:"profile"`
	// Hardened is true in clusters that began with its defaults; see Strict.
	Hardened bool `json:"hardened"`
	// PodSecurity is the level that was given for namespaces without a label of their own, "" for none; see PodLevel.
	PodSecurity PodLevel `json:"podSecurity,omitempty"`
}

// PodLevel returns the level that namespaces without a label of their own enforce.
func (s Security) PodLevel() PodLevel {
	switch {
	case s.PodSecurity != "":
		return s.PodSecurity
	case s.CIS():
		return PodRestricted
	}
	return PodPrivileged
}

// Strict reports whether the defaults of new clusters are in force.
func (s Security) Strict() bool { return s.Hardened || s.CIS() }

// CIS reports whether the profile is ProfileCIS.
func (s Security) CIS() bool { return s.Profile == ProfileCIS }

// Ciphers returns the cipher suites of TLS 1.2 that servers accept, the strong ones; upstream's default if there are none.
func (s Security) Ciphers() []string {
	if !s.Strict() {
		return nil
	}
	return []string{
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	}
}

// KernelSetting is a setting of the kernel and the value that the kubelet needs. It sets them itself, but not with ProfileCIS.
type KernelSetting struct{ Name, Value string }

// KernelSettings are what the kubelet compares with its option protectKernelDefaults.
func KernelSettings() []KernelSetting {
	return []KernelSetting{
		{"vm.overcommit_memory", "1"}, {"vm.panic_on_oom", "0"}, {"kernel.panic", "10"}, {"kernel.panic_on_oops", "1"},
		{"kernel.keys.root_maxkeys", "1000000"}, {"kernel.keys.root_maxbytes", "25000000"},
	}
}

// HardenedKey is the name of the setting whose default a cluster keeps from its begin.
const HardenedKey = "hardened"

func (d *decoder) security(r raw) Security {
	s := Security{Profile: Profile(d.one(r["profile"])), Hardened: isTrue(r[HardenedKey].one().text)}
	if level := r["pod-security"]; len(level.items) > 0 { // what follows from the profile is not kept: that may change
		s.PodSecurity = PodLevel(d.one(level))
	}
	return s
}

// keepHardened sets --hardened on the server that begins a cluster: at the first start, and to what it was then at later ones. A cluster that
// began with an earlier version stays as it is. Machines that join take the setting from the cluster, and there is none in such a cluster either.
func (r raw) keepHardened(role Role, d paths.Dirs, h host, known Known) {
	v := r[HardenedKey]
	if role != Server || v.layer != fromDefault || known.Settings != nil || r["server"].one().text != "" {
		return
	}
	data, err := h.readFile(d.ServerCluster())
	if errors.Is(err, fs.ErrNotExist) { // and not that only root may read it
		_, err := h.readDir(filepath.Join(d.Etcd(), "member"))
		v.derive(strconv.FormatBool(errors.Is(err, fs.ErrNotExist)))
		return
	}
	var kept Known
	if json.Unmarshal(data, &kept) == nil && kept.Settings[HardenedKey] != "" {
		v.derive(kept.Settings[HardenedKey])
	}
}
