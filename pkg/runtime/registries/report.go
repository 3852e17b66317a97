package registries

import "github.com/coracle-dev/coracle/pkg/core/state"

// Status is what coracle reports of registries.yaml once it was wrong.
type Status struct {
	File string `json:"file"`
	// Error says what is wrong with the file, with the line; its previous content is in force.
	Error string `json:"error,omitempty"`
}

// NewStatus returns the report of a file; err is nil if it is in force.
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
