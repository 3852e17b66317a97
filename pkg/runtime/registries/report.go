package registries

import "github.com/coracle-dev/coracle/pkg/core/state"

// Status is what coracle reports of registries.yaml after it had a mistake.
type Status struct {
	File string `json:"file"`
	// Error is the mistake, with its line; the previous content of the file is in force.
	Error string `json:"error,omitempty"`
}

// NewStatus returns the status of a file; err is nil if its content is in force.
func NewStatus(file string, err error) Status {
	s := Status{File: file}
	if err != nil {
		s.Error = err.Error()
	}
	return s
}

// Report describes the report.
func Report() state.Report {
	return state.NewReport("registries", state.EachNode, "Registries", func(s Status) []string {
		if s.Error == "" {
			return nil
		}
		return []string{"still by the previous content of " + s.File + ": " + s.Error}
	}, nil)
}
