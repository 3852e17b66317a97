package state

// LoadBalancersDetail is the name of a report in Process.Details: []LoadBalancer, in the control plane that leads.
const LoadBalancersDetail = "load-balancers"

// LoadBalancer is a Service of type LoadBalancer.
type LoadBalancer struct {
	Service   string   `json:"service"` // NAMESPACE/NAME
	Addresses []string `json:"addresses"`
	// Problem says why nodes are missing, or all of them.
	Problem string `json:"problem,omitempty"`
}
