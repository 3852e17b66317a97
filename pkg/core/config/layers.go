package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

const envPrefix = "CORACLE_"

// foreignEnv matches variables with coracle's prefix that are not settings: those of the installer, of tests and of coracle
// run, and those that Kubernetes sets in every container of a namespace with a Service named coracle.
var foreignEnv = regexp.MustCompile(`^CORACLE_(VERSION|CLUSTER|INSTALL_.*|BIN|TEST_.*|BENCH(_.*)?|HOLD(_.*)?|SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_[0-9]+_.*)$`)

// problems collects errors, so that all are reported at once.
type problems struct{ list []error }

func (p *problems) add(format string, args ...any) {
	p.list = append(p.list, fmt.Errorf(format, args...))
}

func (p *problems) err() error { return errors.Join(p.list...) }

// read fills r from flags, environment and files. It returns pflag.ErrHelp or nil; other errors are added to p.
func (r raw) read(role Role, args, environ []string, h host, p *problems) error {
	table := r.table(role)
	if err := parseFlags(role, table, args, p); err != nil {
		return err
	}
	r.readOthers(role, table, environ, h, p)
	return nil
}

// readOthers reads the environment and files for what was not given on the command line.
func (r raw) readOthers(role Role, table []setting, environ []string, h host, p *problems) {
	env := r.readEnv(role, table, environ, p)
	if it, ok := env["config"]; ok && r["config"].layer < fromEnv {
		r["config"].put([]item{it}, fromEnv)
	}
	r.readFiles(role, table, h, p)
	for _, s := range table {
		it, ok := env[s.name]
		if !ok || s.collected.layer == fromFlag {
			continue
		}
		s.collected.put(s.split(it.text, it.origin), fromEnv)
		if _, err := strconv.ParseBool(it.text); s.kind == toggle && err != nil {
			p.add("%s: %q is not true or false", it.label(s), it.text)
		}
	}
}

// flagSet returns the flags of a table.
func flagSet(role Role, table []setting) *pflag.FlagSet {
	set := pflag.NewFlagSet("coracle "+string(role), pflag.ContinueOnError)
	set.SortFlags = false
	addFlags(set, table)
	return set
}

func addFlags(set *pflag.FlagSet, table []setting) {
	for _, s := range table {
		f := set.VarPF(s.collected, s.name, s.short, s.help)
		if s.kind == toggle {
			f.NoOptDefVal = "true"
		}
	}
}

// parseFlags reads the command line. Errors are added to p, so that files are still checked.
func parseFlags(role Role, table []setting, args []string, p *problems) error {
	set := flagSet(role, table)
	set.Usage = func() {}
	known, unknown := sortArgs(set, args)
	for _, name := range unknown {
		p.add("unknown flag %s%s", dashed(name), hint(role, table, name, "--"))
	}
	err := set.Parse(known)
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if err != nil {
		p.add("%w", err)
	} else if set.NArg() > 0 && len(unknown) == 0 {
		p.add("unexpected argument %q: coracle %s takes flags only", set.Arg(0), role)
	}
	return nil
}

// sortArgs separates unknown flags from the rest of a command line, because pflag stops at the first unknown one.
func sortArgs(set *pflag.FlagSet, args []string) (known, unknown []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, _, hasValue := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if arg == "--" {
			return append(known, args[i:]...), unknown
		}
		if !strings.HasPrefix(arg, "--") {
			known = append(known, arg) // pflag reports errors of words and short flags well
			continue
		}
		f := set.Lookup(name)
		if f == nil && name != "help" {
			unknown = append(unknown, name)
			continue
		}
		known = append(known, arg)
		if f != nil && f.NoOptDefVal == "" && !hasValue && i+1 < len(args) {
			i++
			known = append(known, args[i])
		}
	}
	return known, unknown
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// readEnv returns the settings in the environment by name.
func (r raw) readEnv(role Role, table []setting, environ []string, p *problems) map[string]item {
	found := map[string]item{}
	byEnv := map[string]setting{}
	for _, s := range table {
		byEnv[s.env()] = s
		byEnv[s.alias] = s
	}
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		if text == "" {
			continue // counts as not set, so that "${X:-}" works in compose files
		}
		if s, ok := byEnv[name]; ok && !foreignEnv.MatchString(name) {
			if _, known := found[s.name]; !known || name == s.env() {
				found[s.name] = item{text, origin{fromEnv, name}}
			}
			continue
		}
		if !strings.HasPrefix(name, envPrefix) || foreignEnv.MatchString(name) {
			continue
		}
		key := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "_", "-"))
		p.add("%s: no such setting%s", name, hint(role, table, key, envPrefix))
	}
	return found
}

// readFiles merges the configuration file and then its drop-ins into r.
func (r raw) readFiles(role Role, table []setting, h host, p *problems) {
	it := r["config"].one()
	main := it.text
	if main == "" {
		p.add("%s: the name of the file is empty", r["config"].label())
		return
	}
	files := []string{main}
	dropIns, err := h.readDir(main + ".d")
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		p.add("%s: reading drop-ins: %w", r["config"].label(), err)
	}
	for _, entry := range dropIns {
		if ext := filepath.Ext(entry.Name()); !entry.IsDir() && (ext == ".yaml" || ext == ".yml") {
			files = append(files, filepath.Join(main+".d", entry.Name()))
		}
	}
	for i, file := range files {
		data, err := h.readFile(file)
		if errors.Is(err, fs.ErrNotExist) && i == 0 && r["config"].layer == fromDefault {
			continue
		}
		if err != nil {
			p.add("%s: reading the configuration: %w", r["config"].label(), err)
			continue
		}
		mergeFile(role, table, file, data, p)
	}
}

// hint suggests a setting with a name similar to an unknown one.
func hint(role Role, table []setting, name, prefix string) string {
	show := func(n string) string {
		if prefix == envPrefix {
			return setting{name: n}.env()
		}
		return prefix + n
	}
	if role == Agent && slices.ContainsFunc(serverTable(), func(s setting) bool { return s.name == name }) {
		return "; it is a setting of servers, and agents take it from theirs where they need it"
	}
	best, bestDistance := "", len(name)/3+2
	for _, s := range table {
		if d := Distance(name, s.name); d < bestDistance {
			best, bestDistance = s.name, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + show(best) + "?"
}

// Distance returns the Levenshtein distance: how many letters to insert, delete or change to turn a into b.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
