package kubelet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	"sigs.k8s.io/yaml"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// podPids is how many processes and threads a pod may have. A fork bomb then ends before the machine's limit, and large Java programs work.
const podPids = int64(16384)

// config returns coracle's configuration. Other settings have upstream's defaults.
func (k Kubelet) config() *kubeletv1.KubeletConfiguration {
	c := &kubeletv1.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: kubeletv1.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},

		Address:            "0.0.0.0",
		ReadOnlyPort:       0,
		HealthzBindAddress: "127.0.0.1",
		Authentication: kubeletv1.KubeletAuthentication{
			Anonymous: kubeletv1.KubeletAnonymousAuthentication{Enabled: new(false)},
			Webhook:   kubeletv1.KubeletWebhookAuthentication{Enabled: new(true)},
			X509:      kubeletv1.KubeletX509Authentication{ClientCAFile: k.ClientCA},
		},
		Authorization:      kubeletv1.KubeletAuthorization{Mode: kubeletv1.KubeletAuthorizationModeWebhook},
		RotateCertificates: true,
		ServerTLSBootstrap: true,
		TLSMinVersion:      "VersionTLS12",

		TLSCipherSuites: k.Ciphers,

		ProtectKernelDefaults: k.ProtectKernel,

		ContainerRuntimeEndpoint: "unix://" + k.CRISocket,
		StaticPodPath:            k.StaticPods,
		VolumePluginDir:          filepath.Join(k.Root, "volumeplugins"), // upstream's default is in /usr, which may be read-only
		MakeIPTablesUtilChains:   new(false),                             // they would stay in the host's tables; only kube-proxy's other modes need them
		ClusterDomain:            k.Domain,
		ResolverConfig:           &k.ResolvConf,

		CgroupRoot:   k.CgroupRoot,
		CgroupDriver: "cgroupfs", // the same as containerd's, which goes before it
		FailCgroupV1: new(false),
		FailSwapOn:   new(false), // the host may have swap; pods do not use it

		// Pods are evicted when the disk is nearly full. Before that, from 85 % on (upstream's default), unused images are removed,
		// the oldest first, except for pinned ones.
		EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "5%", "imagefs.available": "5%",
			"nodefs.inodesFree": "5%", "imagefs.inodesFree": "5%", "pid.available": "5%",
		},
		SerializeImagePulls:   new(false),
		MaxParallelImagePulls: new(int32(3)),
		ContainerLogMaxSize:   "10Mi",
		ContainerLogMaxFiles:  new(int32(5)),

		// The Lease is the heartbeat, every 10 s. Changes of the status are sent at once, so an unchanged status is sent rarely.
		NodeStatusReportFrequency: metav1.Duration{Duration: 5 * time.Minute},
		NodeStatusUpdateFrequency: metav1.Duration{Duration: 10 * time.Second},
	}
	for _, ip := range k.ClusterDNS {
		c.ClusterDNS = append(c.ClusterDNS, ip.String())
	}
	if len(k.IPs) > 0 && (len(k.IPs) > 1 || k.IPs[0].Is6()) {
		c.Address, c.HealthzBindAddress = "::", "::1"
	}
	if len(k.IPs) > 1 {
		c.HealthzBindAddress = "127.0.0.1"
	}
	if k.Strict {
		c.SeccompDefault, c.PodPidsLimit = new(true), new(podPids)
	}
	if k.SystemdCgroup {
		c.CgroupDriver = "systemd"
	}
	if k.DelayShutdown {
		c.ShutdownGracePeriod = metav1.Duration{Duration: 30 * time.Second}
		c.ShutdownGracePeriodCriticalPods = metav1.Duration{Duration: 10 * time.Second}
	}
	return c
}

// render returns the content of the configuration file.
func (k Kubelet) render() ([]byte, error) {
	data, err := json.Marshal(k.config())
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, err
	}
	delete(tree, "logging") // coracle configures logging
	prune(tree)
	data, err = yaml.Marshal(tree)
	if err != nil {
		return nil, err
	}
	head := "# Written by coracle at every start. Own settings belong into *.conf or *.yaml files in " + k.DropIns + ".\n"
	return append([]byte(head), data...), nil
}

// prune removes settings without a value: zero durations, which mean the default in this API, nulls and empty objects.
func prune(tree map[string]any) {
	for key, value := range tree {
		if child, ok := value.(map[string]any); ok {
			prune(child)
			value = len(child)
		}
		if value == nil || value == 0 || value == "0s" {
			delete(tree, key)
		}
	}
}

// load writes the generated configuration, merges the drop-ins and returns the result with defaults.
func (k Kubelet) load() (*kubeletconfig.KubeletConfiguration, error) {
	data, err := k.render()
	if err != nil {
		return nil, err
	}
	if err := atomicfile.Write(k.ConfigFile, data, 0o600); err != nil {
		return nil, fmt.Errorf("writing its configuration: %w", err)
	}
	merged, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, err
	}
	files, err := dropIns(k.DropIns)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if merged, err = mergeFile(merged, file); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	logrus.WithField("component", "kubelet").Debugf("configuration: %s", merged)
	config, err := decode(merged)
	if err != nil {
		return nil, fmt.Errorf("reading its configuration: %w", err)
	}
	if config.EvictionHard == nil {
		config.EvictionHard = eviction.DefaultEvictionHard
	}
	return config, nil
}

// dropIns returns the configuration files of a directory, sorted by name. A missing directory has none.
func dropIns(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || dir == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the kubelet's drop-ins: %w", err)
	}
	var files []string
	for _, e := range entries {
		if slices.Contains([]string{".conf", ".yaml", ".yml"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// mergeFile applies one drop-in, which must be a KubeletConfiguration without unknown settings.
func mergeFile(merged []byte, file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	patch, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(bytes.TrimSpace(patch), []byte("null")) {
		return merged, nil // empty, or nothing but comments
	}
	if _, err := decode(patch); err != nil {
		return nil, err
	}
	return jsonpatch.MergePatch(merged, patch)
}

// flags returns the settings that exist only as flags, and the user's flags.
func (k Kubelet) flags() kube.Flags {
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(k.Labels)) {
		labels = append(labels, name+"="+k.Labels[name])
	}
	f := kube.Flags{
		{"hostname-override", k.Name},
		{"node-ip", kube.List(k.IPs)},
		{"kubeconfig", k.Kubeconfig},
		{"cert-dir", k.PKI},
		{"root-dir", k.Root},
	}
	if k.ExternalAddresses {
		f = append(f, [2]string{"cloud-provider", "external"})
	}
	if len(labels) > 0 {
		f = append(f, [2]string{"node-labels", strings.Join(labels, ",")})
	}
	if len(k.Taints) > 0 {
		f = append(f, [2]string{"register-with-taints", strings.Join(k.Taints, ",")})
	}
	return f.Override(k.Args)
}

// parse applies the flags. Flags for settings of the configuration change config.
func (k Kubelet) parse(flags *options.KubeletFlags, config *kubeletconfig.KubeletConfiguration) error {
	gates := maps.Clone(config.FeatureGates)
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	flags.AddFlags(set)
	options.AddKubeletConfigFlags(set, config)
	options.AddGlobalFlags(set)
	sets := cliflag.NamedFlagSets{Order: []string{"kubelet"}, FlagSets: map[string]*pflag.FlagSet{"kubelet": set}}
	if err := k.flags().Parse("kubelet", sets); err != nil {
		return err
	}
	kube.RaiseVerbosity(int(config.Logging.Verbosity))
	if flags.KubeletConfigFile != "" || flags.KubeletDropinConfigDirectory != "" {
		return fmt.Errorf("--kubelet-arg config and config-dir are coracle's own: put the files into %s instead", k.DropIns)
	}
	if flags.CertDirectory != k.PKI {
		return fmt.Errorf("--kubelet-arg cert-dir is coracle's own: it is %s", k.PKI)
	}
	// The flag replaces all gates of the configuration, although it should only add to them.
	for name, on := range gates {
		if _, ok := config.FeatureGates[name]; !ok {
			config.FeatureGates[name] = on
		}
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(config.FeatureGates); err != nil {
		return fmt.Errorf("setting feature gates: %w", err)
	}
	if err := validation.ValidateKubeletConfiguration(config, utilfeature.DefaultFeatureGate); err != nil {
		return fmt.Errorf("checking its configuration: %w", err)
	}
	return nil
}
