package logs

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestUnblocked: a pipe that nobody reads stops nobody, and what was dropped is counted in its place.
func TestUnblocked(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	u := &Unblocked{To: w, Missing: func(lines int) string { return fmt.Sprintf("%d are missing\n", lines) }}
	if !u.Flush(time.Minute) {
		t.Error("nothing is written, and it waits")
	}
	const lines = 50_000
	for i := range lines {
		fmt.Fprintf(u, "line %d %s\n", i, strings.Repeat("x", 90))
	}
	if u.Flush(10 * time.Millisecond) {
		t.Error("it says that all is written")
	}
	read := bufio.NewScanner(r)
	next := func() string {
		t.Helper()
		if !read.Scan() {
			t.Fatal(read.Err())
		}
		return read.Text()
	}
	kept, missing := 0, 0
	for kept+missing < lines {
		text, some := next(), 0
		if _, err := fmt.Sscanf(text, "%d are missing", &some); err == nil {
			missing += some
			continue
		}
		if !strings.HasPrefix(text, fmt.Sprintf("line %d ", kept+missing)) {
			t.Fatalf("line %d is %.20s", kept+missing, text)
		}
		kept++
	}
	if missing == 0 || kept < maxUnread/100 {
		t.Errorf("%d are kept, %d are missing", kept, missing)
	}
	fmt.Fprintln(u, "the last one")
	if text := next(); text != "the last one" {
		t.Errorf("the next line is %.20s", text)
	}
	if !u.Flush(time.Minute) {
		t.Error("not all is written")
	}
}

// TestUnblockedKeepsTheOrder: a short line that would still fit does not come before the place of a long one that was dropped.
func TestUnblockedKeepsTheOrder(t *testing.T) {
	u := &Unblocked{writing: true} // as while the reader reads nothing
	for _, text := range []string{strings.Repeat("x", maxUnread-10) + "\n", "a line of 20 letters\n", "short\n"} {
		fmt.Fprint(u, text)
	}
	if len(u.queue) != maxUnread-9 || u.dropped != 2 {
		t.Errorf("%d bytes are kept, %d lines are dropped", len(u.queue), u.dropped)
	}
}
