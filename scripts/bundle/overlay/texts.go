package overlay

// These are the longer texts of patches.
const (
	importOfWait     = "\t\"k8s.io/apimachinery/pkg/util/wait\"\n"
	importOfHelmPath = "\t\"helm.sh/helm/v4/pkg/helmpath\"\n"
	withWazero       = `	cc, err := wazero.NewCompilationCacheWithDir(helmpath.CachePath("wazero-build"))
	if err != nil {
		return nil, fmt.Errorf("failed to create wazero compilation cache: %w", err)
	}
`
	withExtism = `			"extism/v1": &RuntimeExtismV1{
				HostFunctions:    map[string]extism.HostFunction{},
				CompilationCache: cc,
			},
`
	flushesOTLP = `	return errors.Join(
		m.meterProvider.ForceFlush(ctx),
		m.meterProvider.Shutdown(ctx),
	)
`
	memsw = `	swapUsage, err := getMemoryData(path, "memsw")
	if err != nil {
		return err
	}
	stats.MemoryStats.SwapUsage = swapUsage
	stats.MemoryStats.SwapOnlyUsage = cgroups.MemoryData{
		Usage:   swapUsage.Usage - memoryUsage.Usage,
		Failcnt: swapUsage.Failcnt - memoryUsage.Failcnt,
	}
`
	kernelTCP = `	kernelTCPUsage, err := getMemoryData(path, "kmem.tcp")
	if err != nil {
		return err
	}
	stats.MemoryStats.KernelTCPUsage = kernelTCPUsage
`
	numa = `	pagesByNUMA, err := getPageUsageByNUMA(path)
	if err != nil {
		return err
	}
	stats.MemoryStats.PageUsageByNUMA = pagesByNUMA
`
	perCPU = `	percpuUsage, err := getPercpuUsage(path)
	if err != nil {
		return err
	}

	percpuUsageInKernelmode, percpuUsageInUsermode, err := getPercpuUsageInModes(path)
	if err != nil {
		return err
	}
`
	storesPerCPU = `	stats.CpuStats.CpuUsage.PercpuUsage = percpuUsage
	stats.CpuStats.CpuUsage.PercpuUsageInKernelmode = percpuUsageInKernelmode
	stats.CpuStats.CpuUsage.PercpuUsageInUsermode = percpuUsageInUsermode
`
	accountOfConfig = `	_, err := getOrCreateServiceAccount(t.CoreClient, t.Namespace, saName)
	if err != nil {
		return nil, err
	}

`
	accountOfToken = `		if _, inErr := getOrCreateServiceAccount(ts.coreClient, ts.namespace, ts.serviceAccountName); inErr != nil {
			klog.Warningf("get or create service account failed: %v", inErr)
			return false, nil
		}

		tr, inErr := ts.coreClient.ServiceAccounts(ts.namespace).CreateToken(`
	selfSignedRSA = `certutil.GenerateSelfSignedCertKeyWithOptions(certutil.SelfSignedCertKeyOptions{
		Host:   server.LoopbackClientServerNameOverride,
		MaxAge: maxAge,
	})`
	importOfSets      = "\t\"k8s.io/apimachinery/pkg/util/sets\"\n"
	importOfCRIErrors = "\tcrierrors \"k8s.io/cri-api/pkg/errors\"\n"
	statusFailed      = "\tif err != nil {\n\t\treturn fmt.Errorf(\"get container status: %w\", err)\n"
	statusOfRemoved   = "\tif crierrors.IsNotFound(err) {\n\t\treturn nil\n\t}\n"
	importOfOndemand  = "\twait \"k8s.io/kubernetes/pkg/kubelet/volumemanager/ondemand\"\n"
)
