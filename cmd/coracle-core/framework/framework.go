// Package framework takes the place of sigs.k8s.io/cri-tools/pkg/framework in upstream's crictl, which needs one constant of it, and would link a
// framework for tests with parts of the Go compiler: 5 MB.
package framework

// OSWindows is upstream's.
const OSWindows = "windows"
