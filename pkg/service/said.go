package service

import "strings"

// complaint is the part of a log that says why something failed: the last lines that are addressed to people, else the
// last lines.
func complaint(log string, lines int) string {
	all := strings.Split(strings.TrimSpace(log), "\n")
	end := len(all)
	for end > 0 && !strings.HasPrefix(all[end-1], toPeople) {
		end--
	}
	begin := end
	for begin > 0 && strings.HasPrefix(all[begin-1], toPeople) {
		begin--
	}
	if begin < end {
		for i, line := range all[begin:end] {
			all[begin+i] = strings.TrimPrefix(line, toPeople)
		}
		all = all[begin:end]
	}
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// toPeople is how package complain begins a line.
const toPeople = "coracle: "
