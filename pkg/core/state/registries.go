package state

// RegistriesDetail is the name of a report in Process.Details: Registries, in the node.
const RegistriesDetail = "registries"

// Registries is what became of registries.yaml after it was wrong once.
type Registries struct {
	File string `json:"file"`
	// Error says what is wrong with it, with the line; what it said before is in force.
	Error string `json:"error,omitempty"`
}
