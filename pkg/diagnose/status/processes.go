package status

import (
	"fmt"
	"strconv"

	"github.com/coracle-dev/coracle/pkg/core/quantity"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// processes writes the table of processes, and why a process is root although it has a user of its own.
func (w *writer) processes(all []Process) {
	w.line("")
	tab := w.table()
	fmt.Fprintln(tab, "PROCESS\tSTATE\tPID\tUSER\tAGE\tMEMORY\tCPU\tRESTARTS")
	for _, p := range all {
		if p.Name == state.Front {
			p.Name = "coracle"
		}
		if p.PID == 0 {
			fmt.Fprintf(tab, "%s\t%s\t-\t-\t-\t-\t-\t%d\n", p.Name, p.State, p.Restarts)
			continue
		}
		fmt.Fprintf(tab, "%s\t%s\t%d\t%s\t%s\t%s\t%.1fs\t%d\n",
			p.Name, p.State, p.PID, userName(p.User), w.age(p.Started), quantity.Bytes(p.Memory), p.CPU, p.Restarts)
	}
	w.flush(tab)
	for _, p := range all {
		if p.AsRoot != "" {
			w.line("%s runs as root: %s", p.Name, p.AsRoot)
		}
	}
}

// userName is root, or the id of a user that has no name.
func userName(id int) string {
	if id == 0 {
		return "root"
	}
	return strconv.Itoa(id)
}
