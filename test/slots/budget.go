package slots

import (
	_ "embed"
	"fmt"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Row is a line of budget.txt.
type Row struct {
	Test    string // package and name, as in e2e/TestBackup
	Slots   int
	Alone   bool // takes all slots
	Seconds int  // usual duration on two cores
}

// longest is longer than any test, in seconds.
const longest = 1 << 20

//go:embed budget.txt
var budget string

// Budget returns the table of the tests that start machines or clusters, and of other long tests.
func Budget() (rows []Row, err error) {
	for line := range strings.Lines(budget) {
		line, _, _ = strings.Cut(line, "#")
		field := strings.Fields(line)
		if len(field) == 0 {
			continue
		}
		if len(field) != 3 {
			return nil, fmt.Errorf("test/slots/budget.txt: %q: want test, slots and seconds", line)
		}
		r := Row{Test: field[0], Alone: field[1] == "alone"}
		if !r.Alone {
			r.Slots, err = strconv.Atoi(field[1])
		}
		if err == nil {
			r.Seconds, err = strconv.Atoi(field[2])
		}
		if err != nil {
			return nil, fmt.Errorf("test/slots/budget.txt: %q: %w", line, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// find returns the row of a test.
func find(pkg, name string) (Row, error) {
	rows, err := Budget()
	if err != nil {
		return Row{}, err
	}
	for _, r := range rows {
		if r.Test == pkg+"/"+name {
			return r, nil
		}
	}
	return Row{}, fmt.Errorf("%s/%s starts machines and has no row in test/slots/budget.txt", pkg, name)
}

// testPackage returns the last element of the path of the package under test.
func testPackage() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return strings.TrimSuffix(path.Base(info.Path), ".test")
}
