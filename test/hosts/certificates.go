package hosts

import (
	"encoding/json"
	"fmt"
	"strings"
)

// FormerlySigned returns an error if one of a host's certificates is signed by an authority with which the cluster began: rotate-ca gives those that it makes
// a name with the time.
func (h *Host) FormerlySigned() error {
	out, err := h.TryCoracle("certificate", "check", "-o", "json")
	if err != nil {
		return err
	}
	var list []struct{ Name, Issuer string }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return err
	}
	var former []string
	for _, one := range list {
		if !strings.Contains(one.Issuer, "@") {
			former = append(former, one.Name)
		}
	}
	if len(former) > 0 || len(list) == 0 {
		return fmt.Errorf("%s: former authorities have signed %v of %d certificates", h.Name, former, len(list))
	}
	return nil
}
