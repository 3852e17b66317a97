package overlay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// change is a text in a file of a module, and what replaces it.
type change struct {
	file, old, new string
	times          int // that the text must be there; 0 means once
}

// patch is how a module's sources are changed.
type patch struct {
	module  string
	parts   []string // directories and files of the module that are needed; nil means all
	changes []change
	added   map[string]string // the name of each new file, and the file under files/ that it is
}

// patches are the changed modules, by the names of their directories.
var patches = map[string]patch{
	// runc keeps the programs of seccomp profiles in files. Without that each process of a container, also that of a probe, takes libseccomp some
	// 25 ms, which is half of what runc takes.
	"runc": {"github.com/opencontainers/runc", nil, []change{
		{file: "libcontainer/configs/config.go", old: "json:\"listener_metadata,omitempty\"`\n", new: "json:\"listener_metadata,omitempty\"`\n\tProgram []byte `json:\"program,omitempty\"`\n"},
		{file: "libcontainer/container_linux.go", old: "\t\tConfig:           c.config,\n", new: "\t\tConfig:           withSeccompProgram(c.config, c.stateDir),\n"},
		{file: "libcontainer/seccomp/seccomp_linux.go", old: "func InitSeccomp(config *configs.Seccomp) (int, error) {\n", new: `func InitSeccomp(config *configs.Seccomp) (int, error) {
	if config != nil && len(config.Program) > 0 {
		return patchbpf.Load(config.Program)
	}
	return withFilter(config, patchbpf.PatchAndLoad)
}

func withFilter(config *configs.Seccomp, use func(*configs.Seccomp, *libseccomp.ScmpFilter) (int, error)) (int, error) {
`},
		{file: "libcontainer/seccomp/seccomp_linux.go", old: "err := patchbpf.PatchAndLoad(config, filter)", new: "err := use(config, filter)"},
	}, map[string]string{
		"libcontainer/coracle.go":                  "files/runc/libcontainer.go.txt",
		"libcontainer/seccomp/coracle.go":          "files/runc/seccomp.go.txt",
		"libcontainer/seccomp/patchbpf/coracle.go": "files/runc/patchbpf.go.txt",
	}},
	// A pipe takes no memory while it is silent. And containerd, which cancels the openings of an ended container's outputs, gets what was written to them
	// also if the goroutine that opens one has not run since: fifo v1.1.0 loses it.
	"fifo": {"github.com/containerd/fifo", nil, []change{
		{file: "fifo.go", old: "\t\t\tdefault:\n\t\t\t\tf.Close()\n", new: "\t\t\tdefault:\n\t\t\t\tif block || flag != syscall.O_RDONLY || !f.release() {\n\t\t\t\t\tf.Close()\n\t\t\t\t}\n"},
	}, map[string]string{"coracle.go": "files/fifo/fifo.go.txt"}},
	// The kubelet's loops run at once when they are waited for, and seldom when nothing happens: its volume manager's two of 100 ms, and the one that lists
	// all pods every second. Its certificates can be replaced while it runs. The API server's requests to kubelets go on when their certificate is replaced.
	// It asks the runtime once where a container's log is, and not every 10 s. Its search for unused images goes on when a container is removed
	// meanwhile: upstream's gives up for five minutes, as after each start that finds containers to remove (v1.37.1, handleImageVolumes). kube-proxy does not
	// search iptables for each rule that its other modes make, nor load the module of ipvs to see that there is none.
	"kubernetes": {"k8s.io/kubernetes", []string{"LICENSE", "go.mod", "cmd", "pkg", "plugin", "third_party"}, []change{
		{file: "pkg/kubelet/volumemanager/volume_manager.go", old: importOfWait, new: importOfOndemand},
		{file: "pkg/kubelet/volumemanager/reconciler/reconciler.go", old: importOfWait, new: importOfOndemand},
		{file: "pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go", old: importOfWait, new: importOfOndemand},
		{file: "pkg/kubelet/certificate/kubelet.go", old: "certificate.NewManager(", new: "newRenewable(", times: 2},
		{file: "pkg/kubelet/client/kubelet_client.go", old: "return transport.New(", new: "return newReloading("},
		{file: "pkg/kubelet/container/cache.go", old: "\tc.subscribers[id] = append(", new: "\tWant()\n\tc.subscribers[id] = append("},
		{file: "pkg/kubelet/images/image_gc_manager.go", old: importOfSets, new: importOfSets + importOfCRIErrors},
		{file: "pkg/kubelet/images/image_gc_manager.go", old: statusFailed, new: statusOfRemoved + statusFailed},
		{file: "pkg/kubelet/kubelet.go", old: "if utilfeature.DefaultFeatureGate.Enabled(features.EventedPLEG) {", new: "if true {"},
		{file: "pkg/kubelet/logs/container_log_manager.go", old: "\tmonitoringPeriod metav1.Duration\n", new: "\tmonitoringPeriod metav1.Duration\n\tpaths sync.Map // by the containers' IDs\n"},
		{file: "pkg/kubelet/logs/container_log_manager.go", old: "\tfor _, container := range containers {\n", new: "\tc.forget(containers)\n\tfor _, container := range containers {\n"},
		{file: "pkg/kubelet/logs/container_log_manager.go", old: "\tid := key\n", new: "\tid := key\n\tif c.small(id) {\n\t\treturn\n\t}\n"},
		{file: "pkg/kubelet/logs/container_log_manager.go", old: "\tpath := resp.GetStatus().GetLogPath()\n", new: "\tpath := resp.GetStatus().GetLogPath()\n\tc.paths.Store(id, path)\n"},
		{file: "pkg/kubelet/pleg/evented.go", old: "e.podRelister.RequestRelist(logger, podID)", new: "kubecontainer.Want()"},
		{file: "pkg/kubelet/pleg/evented.go", old: "if numAttempts >= e.eventedPlegMaxStreamRetries {\n", new: "if numAttempts >= e.eventedPlegMaxStreamRetries {\n\t\t\t\teventless.Store(true)\n"},
		{file: "pkg/kubelet/pleg/evented.go", old: "\t\"k8s.io/kubernetes/pkg/kubelet/metrics\"\n", new: "\tkubecontainer \"k8s.io/kubernetes/pkg/kubelet/container\"\n\t\"k8s.io/kubernetes/pkg/kubelet/metrics\"\n"},
		{file: "pkg/kubelet/pleg/evented.go", old: "\tfor event := range containerEventsResponseCh {\n", new: "\tfor event := range containerEventsResponseCh {\n\t\thappened()\n"},
		{file: "pkg/kubelet/pleg/generic.go", old: "\tg.podsToReinspect.Store(podUID, empty)\n", new: "\tg.podsToReinspect.Store(podUID, empty)\n\thappened()\n"},
		{file: "pkg/kubelet/pleg/generic.go", old: "\tglobalRelistTimer clock.Timer\n", new: "\tglobalRelistTimer clock.Timer\n\tpace\n"},
		{file: "pkg/kubelet/pleg/generic.go", old: "g.globalRelistTimer.Reset(g.relistDuration.RelistPeriod)", new: "g.later()", times: 2},
		{file: "pkg/kubelet/pleg/generic.go", old: "\tcase req := <-g.relistRequests:\n", new: "\tcase <-kubecontainer.Wanted:\n\t\tg.sooner(soon)\n\tcase <-active:\n\t\tg.sooner(g.relistDuration.RelistPeriod)\n\tcase req := <-g.relistRequests:\n\t\tg.sooner(g.relistDuration.RelistPeriod)\n"},
		{file: "pkg/proxy/iptables/cleanup.go", old: "\tlogger := klog.FromContext(ctx)\n", new: "\tif nothingLeft(ipt) {\n\t\treturn false\n\t}\n\tlogger := klog.FromContext(ctx)\n"},
		{file: "pkg/proxy/ipvs/cleanup.go", old: "\t\"os/exec\"\n", new: "\t\"os\"\n"},
		{file: "pkg/proxy/ipvs/cleanup.go", old: "exec.Command(\"modprobe\", \"-va\", \"ip_vs\").CombinedOutput()", new: "os.Stat(\"/proc/net/ip_vs\")"},
		{file: "pkg/kubelet/pleg/generic.go", old: "\tstatus, err := g.updateCache(ctx, pod, pid)\n", new: "\tg.changed = g.clock.Now()\n\tstatus, err := g.updateCache(ctx, pod, pid)\n"},
	}, map[string]string{
		"pkg/kubelet/certificate/coracle.go":             "files/kubernetes/certificate.go.txt",
		"pkg/kubelet/client/coracle.go":                  "files/kubernetes/client.go.txt",
		"pkg/kubelet/container/coracle.go":               "files/kubernetes/container.go.txt",
		"pkg/kubelet/logs/coracle.go":                    "files/kubernetes/logs.go.txt",
		"pkg/kubelet/pleg/coracle.go":                    "files/kubernetes/pleg.go.txt",
		"pkg/proxy/iptables/coracle.go":                  "files/kubernetes/iptables.go.txt",
		"pkg/kubelet/volumemanager/ondemand/ondemand.go": "files/kubernetes/ondemand.go.txt",
	}},
	// nft takes 15 to 40 ms of a processor for each run, and a node's start had it run 32 times: each New asked for its version and for what the kernel
	// can, and kube-proxy listed sets that do not exist (v0.0.22, New and ListElements).
	"knftables": {"sigs.k8s.io/knftables", nil, []change{
		{file: "nftables.go", old: "\tout, err := nft.exec.Run(cmd)\n\tif err != nil {\n\t\treturn nil, fmt.Errorf(\"could not run", new: "\tout, err := nft.once(\"version\", func() (string, error) { return nft.exec.Run(cmd) })\n\tif err != nil {\n\t\treturn nil, fmt.Errorf(\"could not run"},
		{file: "nftables.go", old: "\tif err := nft.Check(context.TODO(), tx); err != nil {\n\t\tnft.noObjectComments", new: "\tif _, err := nft.once(string(testFamily), func() (string, error) { return \"\", nft.Check(context.TODO(), tx) }); err != nil {\n\t\tnft.noObjectComments"},
		{file: "nftables.go", old: "\tcmd := exec.CommandContext(ctx, nft.path, \"--json\", \"list\", objectType, string(nft.family), nft.table, name)\n", new: "\tif nft.lacks(name) {\n\t\treturn nil, notFoundError(\"there is no %s %s\", objectType, name)\n\t}\n\tcmd := exec.CommandContext(ctx, nft.path, \"--json\", \"list\", objectType, string(nft.family), nft.table, name)\n"},
	}, map[string]string{"coracle.go": "files/knftables/nftables.go.txt"}},
	// Helm's plugins, which coracle has none of, need no compiler for WebAssembly.
	"helm": {"helm.sh/helm/v4", nil, []change{
		{file: "internal/plugin/loader.go", old: "\textism \"github.com/extism/go-sdk\"\n\t\"github.com/tetratelabs/wazero\"\n", new: ""},
		{file: "internal/plugin/loader.go", old: importOfHelmPath, new: ""},
		{file: "internal/plugin/loader.go", old: withWazero, new: ""},
		{file: "internal/plugin/loader.go", old: withExtism, new: ""},
		{file: "internal/plugin/metadata.go", old: "\tcase \"extism/v1\":\n\t\truntimeConfig, err = remarshalRuntimeConfig[*RuntimeConfigExtismV1](runtimeConfigRaw)\n", new: ""},
	}, map[string]string{"internal/plugin/runtime_extismv1.go": "files/helm/extism.go.txt"}},
	// Caddy serves what the gateway configures, without what trims has: neither files nor commands configure it, and it is no authority.
	// It reads NOTIFY_SOCKET before coracle does, and the socket is outside its root directory.
	"caddy": {"github.com/caddyserver/caddy/v2", nil, []change{
		{file: "storage.go", old: "var ConfigAutosavePath = filepath.Join(AppConfigDir(), \"autosave.json\")", new: "var ConfigAutosavePath string"},
		{file: "notify/notify_linux.go", old: "	if socketPath == \"\" {\n		return nil\n	}\n", new: "	if true {\n		return nil\n	}\n"},
		{file: "modules/caddyhttp/metrics.go", old: "	meterProvider  *sdkmetric.MeterProvider\n", new: ""},
		{file: "modules/caddyhttp/metrics.go", old: "m == nil || m.meterProvider == nil", new: "m != nil"},
		{file: "modules/caddyhttp/metrics.go", old: flushesOTLP, new: "	return nil\n"},
	}, map[string]string{
		"modules/caddyhttp/coracle.go": "files/caddy/caddyhttp.go.txt",
		"modules/caddytls/coracle.go":  "files/caddy/caddytls.go.txt",
	}},
	// The header of a request of HTTP/3 has to arrive in a time. http.Server has that; quic-go v0.64.1 has not.
	"quic-go": {"github.com/quic-go/quic-go", nil, []change{
		{file: "http3/server_conn.go", old: "\tframe, err := fp.ParseNext(qlogger)\n", new: "\tstr.SetReadDeadline(time.Now().Add(headerTimeout))\n\tframe, err := fp.ParseNext(qlogger)\n"},
		{file: "http3/server_conn.go", old: "\tdecodeFn := decoder.Decode(headerBlock)\n", new: "\tstr.SetReadDeadline(time.Time{})\n\tdecodeFn := decoder.Decode(headerBlock)\n"},
	}, map[string]string{"http3/coracle.go": "files/quic-go/http3.go.txt"}},
	// Limits of containers are read every half minute, not for each of the kubelet's looks at their use. And a kubelet that asks for the file systems while
	// the first figures are being stored gets the error of one that asks before: lib v0.60.6 still ends its process with an index out of range. Statistics of
	// containers are read at full seconds.
	"cadvisor": {"github.com/google/cadvisor/lib", nil, []change{
		{file: "manager/container.go", old: "> 5*time.Second || shouldUpdateSubcontainers", new: "> 30*time.Second || shouldUpdateSubcontainers"},
		{file: "manager/manager.go", old: "	for i := range stats[0].Filesystem {\n", new: "	if len(stats) == 0 {\n		return nil, memory.ErrDataNotFound\n	}\n	for i := range stats[0].Filesystem {\n"},
		{file: "manager/container.go", old: "houseKeepingTimer.Reset(cd.nextHousekeepingInterval())", new: "houseKeepingTimer.Reset(toFullSecond(cd.clock.Now(), cd.nextHousekeepingInterval()))"},
	}, map[string]string{"manager/coracle.go": "files/cadvisor/manager.go.txt"}},
	// Half of the 28 files that cadvisor reads of each control group of cgroup v1 are for figures that it does not show: those of memory with swap, by NUMA node and
	// of TCP, the limit and history of the kernel's memory, and each processor's part. Nobody else reads statistics with this module.
	"cgroups": {"github.com/opencontainers/cgroups", nil, []change{
		{file: "fs/memory.go", old: memsw, new: ""},
		{file: "fs/memory.go", old: kernelTCP, new: ""},
		{file: "fs/memory.go", old: numa, new: ""},
		{file: "fs/memory.go", old: "\tmemoryData.Usage = value\n", new: "\tif memoryData.Usage = value; name != \"\" {\n\t\treturn memoryData, nil\n\t}\n"},
		{file: "fs/cpuacct.go", old: perCPU, new: ""},
		{file: "fs/cpuacct.go", old: storesPerCPU, new: ""},
	}, nil},
	// What few processes of coracle use is made when it is first used, and not when each starts: etcd's logger, which keeps 0.45 MB, and for Helm the compiled
	// schemas of schemas and another set of the types of Kubernetes, which keep 0.4 MB each. The certificate of the API server's requests to itself has a key of
	// ECDSA: upstream makes two of RSA at each start, which take 0.3 s of a processor before anything is served, at times more than a second. The caches look
	// for bookmarks that are due at the same moment.
	"apiserver": {"k8s.io/apiserver", []string{"LICENSE", "go.mod", "pkg", "plugin"}, []change{
		{file: "pkg/storage/storagebackend/factory/etcd3.go", old: "var etcd3ClientLogger *zap.Logger\n", new: ""},
		{file: "pkg/storage/storagebackend/factory/etcd3.go", old: "\tl, err := logutil.", new: "}\n\nvar etcd3ClientLogger = sync.OnceValue(func() *zap.Logger {\n\tl, err := logutil."},
		{file: "pkg/storage/storagebackend/factory/etcd3.go", old: "\tetcd3ClientLogger = l.Named(\"etcd-client\")\n}\n", new: "\treturn l.Named(\"etcd-client\")\n})\n"},
		{file: "pkg/storage/storagebackend/factory/etcd3.go", old: "etcd3ClientLogger,\n", new: "etcd3ClientLogger(),\n"},
		{file: "pkg/server/options/serving_with_loopback.go", old: "\tcertutil \"k8s.io/client-go/util/cert\"\n", new: ""},
		{file: "pkg/server/options/serving_with_loopback.go", old: selfSignedRSA, new: "selfSigned(server.LoopbackClientServerNameOverride)"},
		{file: "pkg/storage/cacher/cacher.go", old: "c.clock.NewTimer(wait.Jitter(time.Second, 0.25))", new: "c.clock.NewTimer(c.untilBookmarks())"},
		{file: "pkg/storage/cacher/cacher.go", old: "\t\t\tbookmarkTimer.Reset(wait.Jitter(time.Second, 0.25))\n", new: "\t\t\tbookmarkTimer.Reset(c.untilBookmarks())\n\t\t\tif !c.bookmarksDue() {\n\t\t\t\tcontinue\n\t\t\t}\n"},
	}, map[string]string{
		"pkg/server/options/coracle.go": "files/apiserver/options.go.txt",
		"pkg/storage/cacher/coracle.go": "files/apiserver/cacher.go.txt",
	}},
	// Work queues count twice a second how long their unfinished items take, for two metrics. There are some hundred queues, and most are always empty.
	"client-go": {"k8s.io/client-go", clientGo, []change{
		{file: "util/workqueue/queue.go", old: "const defaultUnfinishedWorkUpdatePeriod = 500 * time.Millisecond\n", new: "const defaultUnfinishedWorkUpdatePeriod = 10 * time.Second\n"},
	}, nil},
	// The controller manager asks for a controller's token when the controller sends its first request. Upstream reads each controller's account twice before that,
	// the first time before any controller runs.
	"controller-manager": {"k8s.io/controller-manager", nil, []change{
		{file: "pkg/clientbuilder/client_builder_dynamic.go", old: accountOfConfig, new: ""},
		{file: "pkg/clientbuilder/client_builder_dynamic.go", old: accountOfToken, new: "\t\ttr, inErr := ts.createToken("},
	}, map[string]string{"pkg/clientbuilder/coracle.go": "files/controller-manager/clientbuilder.go.txt"}},
	// An alias in a document of YAML is four bytes, and may stand for a text of a megabyte in each of a hundred thousand places (v1.6.0, yamlToJSONTarget; yaml.v2
	// limits nodes, not bytes). The API server refuses aliases (pkg/kubernetes/apiserver/aliases.go); this is for the values of HelmCharts, which are decoded in
	// the same process. Binary values and keys that are there twice can still take much; a limit in yaml.v2's decoder would end both, and this patch.
	"yaml": {"sigs.k8s.io/yaml", nil, []change{
		{file: "yaml.go", old: "\terr := unmarshalFn(yamlBytes, &yamlObj)\n", new: "\terr := unmarshalFn(yamlBytes, &yamlObj)\n\tif err == nil {\n\t\terr = checkAliases(yamlBytes, yamlObj)\n\t}\n"},
	}, map[string]string{"coracle.go": "files/yaml/yaml.go.txt"}},
	"jsonschema": {"github.com/santhosh-tekuri/jsonschema/v6", nil, []change{
		{file: "compiler.go", old: "func NewCompiler() *Compiler {\n", new: "func NewCompiler() *Compiler {\n\tcompileMetaschemas()\n\treturn newCompiler()\n}\n\nfunc newCompiler() *Compiler {\n"},
		{file: "draft.go", old: "\t\"strings\"\n", new: "\t\"strings\"\n\t\"sync\"\n"},
		{file: "draft.go", old: "func init() {\n\tc := NewCompiler()\n", new: "var compileMetaschemas = sync.OnceFunc(func() {\n\tc := newCompiler()\n"},
		{file: "draft.go", old: "\"meta/\" + name)\n\t\t}\n\t}\n}\n", new: "\"meta/\" + name)\n\t\t}\n\t}\n})\n"},
	}, nil},
	"controller-runtime": {"sigs.k8s.io/controller-runtime", []string{"LICENSE", "go.mod", "pkg"}, []change{
		{file: "pkg/client/apiutil/apimachinery.go", old: "\tprotobufScheme     = runtime.NewScheme()\n", new: ""},
		{file: "pkg/client/apiutil/apimachinery.go", old: "func init() {\n", new: "var protobufScheme = sync.OnceValue(func() *runtime.Scheme {\n\tall := runtime.NewScheme()\n"},
		{file: "pkg/client/apiutil/apimachinery.go", old: "AddToScheme(protobufScheme); err != nil {\n\t\tpanic(err)\n\t}\n}\n", new: "AddToScheme(all); err != nil {\n\t\tpanic(err)\n\t}\n\treturn all\n})\n"},
		{file: "pkg/client/apiutil/apimachinery.go", old: "addToScheme(protobufScheme)", new: "addToScheme(protobufScheme())"},
		{file: "pkg/client/apiutil/apimachinery.go", old: "protobufScheme.Recognizes", new: "protobufScheme().Recognizes"},
	}, nil},
}

// clientGo are the parts of client-go that programs use.
var clientGo = []string{
	"LICENSE", "go.mod", "applyconfigurations", "discovery", "dynamic", "features", "gentype", "informers", "kubernetes", "listers", "metadata", "openapi", "openapi3",
	"pkg", "plugin", "rest", "restmapper", "scale", "testing", "third_party", "tools", "transport", "util",
}

// trims are what is left out of changed modules, by the names of their directories.
var trims = map[string]trim{
	"caddy": {
		packages: []string{
			".", "modules/caddyevents", "modules/caddyhttp", "modules/caddyhttp/headers", "modules/caddyhttp/reverseproxy", "modules/caddyhttp/rewrite",
			"modules/caddytls", "modules/internal/network",
		},
		files: []string{
			"modules/caddyhttp/celmatcher.go", "modules/caddyhttp/urlpatternmatcher.go", "modules/caddyhttp/headers/caddyfile.go",
			"modules/caddyhttp/reverseproxy/caddyfile.go", "modules/caddyhttp/reverseproxy/command.go", "modules/caddyhttp/rewrite/caddyfile.go",
			"modules/caddytls/internalissuer.go",
		},
		functions: []string{"CELLibrary", "UnmarshalCaddyfile", "ParseNamedResponseMatcher", "cmdRespond", "provisionOTLP"},
		types:     []string{"PKIRootCAPool", "PKIIntermediateCAPool"},
		calls:     []string{"RegisterCommand(*)", "RegisterModule(PKIRootCAPool)", "RegisterModule(PKIIntermediateCAPool)"},
	},
	// Only "helm lint" checks charts. The others are helpers of upstream's tests.
	"helm":       {files: []string{"pkg/action/lint.go"}},
	"apiserver":  {files: []string{"pkg/admission/plugin/policy/generic/policy_test_context.go"}},
	"kubernetes": {files: []string{"pkg/scheduler/backend/queue/testing.go"}},
}

// WritePatched writes the changed sources of modules to out/NAME each, and out/go.mod, a copy of that in the directory module with which they are used.
// names are separated by commas. (The go command's overlays cannot replace files in the module cache.)
func WritePatched(names, module, out string) error {
	written := map[string][]byte{}
	for _, file := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(module, file))
		if err != nil {
			return err
		}
		written[file] = data
	}
	for name := range strings.SplitSeq(names, ",") {
		p, ok := patches[name]
		if !ok {
			return fmt.Errorf("there is no changed module %s", name)
		}
		sources, err := p.sources(module, trims[name])
		if err != nil {
			return err
		}
		for file, data := range sources {
			written[filepath.Join(name, file)] = data
		}
		place, err := filepath.Rel(module, filepath.Join(out, name)) // relative, because the program's build information has it
		if err != nil {
			return err
		}
		former := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(p.module) + ` => .*\n`)
		written["go.mod"] = fmt.Appendf(former.ReplaceAll(written["go.mod"], nil), "\nreplace %s => ./%s\n", p.module, place)
		if err := os.RemoveAll(filepath.Join(out, name)); err != nil { // which may have files of another version
			return err
		}
	}
	for file, data := range written {
		if err := writeIfChanged(filepath.Join(out, file), data); err != nil {
			return err
		}
	}
	return nil
}

// sources returns the files of a patched module, which it downloads with the version and checksum that go.mod in dir has.
func (p patch) sources(dir string, without trim) (map[string][]byte, error) {
	download := exec.Command("go", "mod", "download", "-json", p.module) // go list would tell nothing of a module that is not there yet
	download.Dir, download.Stderr = dir, os.Stderr
	data, err := download.Output()
	if err != nil {
		return nil, fmt.Errorf("downloading %s: %w", p.module, err)
	}
	var upstream struct{ Dir string }
	if err := json.Unmarshal(data, &upstream); err != nil {
		return nil, err
	}
	sources := map[string][]byte{}
	err = filepath.WalkDir(upstream.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(upstream.Dir, path)
		part, _, _ := strings.Cut(name, string(filepath.Separator))
		if p.parts != nil && (strings.HasSuffix(name, "_test.go") || !slices.Contains(p.parts, part)) {
			return nil
		}
		sources[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, c := range p.changes {
		if sources[c.file], err = c.apply(sources[c.file]); err != nil {
			return nil, fmt.Errorf("%s: %w", p.module, err)
		}
	}
	if err := without.leaveOut(sources); err != nil {
		return nil, fmt.Errorf("%s: %w", p.module, err)
	}
	for name, from := range p.added {
		if sources[name], err = files.ReadFile(from); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

func (c change) apply(data []byte) ([]byte, error) {
	times := max(c.times, 1)
	if n := bytes.Count(data, []byte(c.old)); n != times {
		return nil, fmt.Errorf("%s has %q %d times, not %d: see what has changed upstream", c.file, strings.TrimSpace(c.old), n, times)
	}
	return bytes.ReplaceAll(data, []byte(c.old), []byte(c.new)), nil
}
