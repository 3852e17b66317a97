package kube

import "runtime/debug"

// lazyGC trades memory for a quick start.
func lazyGC() { debug.SetGCPercent(400) }
