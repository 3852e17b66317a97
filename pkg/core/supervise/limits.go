package supervise

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// How many files a process may open. Go programs raise the soft limit to the hard one for themselves and give
// their children the soft one that they were started with: so our halves get the many files that the watches,
// connections and logs of all pods need, and pods get the soft limit that programs expect to find.
const (
	hardFiles = 1 << 20
	softFiles = 1024
)

// oomScore makes the kernel look elsewhere first when memory runs out: without these processes nothing on the node
// is looked after. -1000 would forbid it to end one that leaks.
const oomScore = -998

// RaiseLimits gives this process and those that it will start what a server needs, as far as the machine permits.
func RaiseLimits() {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		more := syscall.Rlimit{Cur: softFiles, Max: max(hardFiles, files.Max)}
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more) != nil {
			more.Max, more.Cur = files.Max, min(softFiles, files.Max)
			_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more)
		}
	}
	for _, resource := range []int{unix.RLIMIT_NPROC, unix.RLIMIT_CORE} {
		_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(oomScore)), 0) // needs CAP_SYS_RESOURCE
}
