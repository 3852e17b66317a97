package state

// ChartsDetail is the name of a report in Process.Details: []Chart, in the control plane.
const ChartsDetail = "charts"

// Chart is a HelmChart that is not in force as it should be.
type Chart struct {
	Name    string `json:"name"`    // NAMESPACE/NAME
	Problem string `json:"problem"` // what went wrong
}
