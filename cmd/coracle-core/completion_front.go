package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/manual"
	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// frontForCompletion is the front's commands, as their description has them, without those of known.
func frontForCompletion(pages []manual.Page, known []*cobra.Command) (out []*cobra.Command) {
	by := map[string]*cobra.Command{}
	for _, c := range known {
		by["coracle "+c.Name()] = c
	}
	for _, p := range pages {
		if by[p.Name] != nil {
			continue
		}
		end := strings.LastIndexByte(p.Name, ' ')
		c := &cobra.Command{Use: p.Name[end+1:], Short: p.Short, ValidArgsFunction: cobra.NoFileCompletions, Run: nothing}
		if complete := frontArguments()[p.Name]; complete != nil {
			c.ValidArgsFunction = complete
		}
		for _, g := range p.Groups {
			addFlags(c, p.Name, g.Flags)
		}
		if parent := by[p.Name[:end]]; parent != nil {
			parent.AddCommand(c)
		} else {
			out = append(out, c)
		}
		by[p.Name] = c
	}
	return out
}

func addFlags(c *cobra.Command, name string, flags []manual.Flag) {
	for _, f := range flags {
		if f.Arg == "" {
			c.Flags().BoolP(f.Name, f.Short, false, f.Help)
			continue
		}
		c.Flags().StringP(f.Name, f.Short, "", f.Help)
		complete := cobra.NoFileCompletions
		switch {
		case frontValues()[name+" --"+f.Name] != nil:
			complete = frontValues()[name+" --"+f.Name]
		case strings.HasSuffix(f.Name, "-dir") || f.Name == "artifacts":
			complete = directories
		case slices.Contains(fileFlags, f.Name):
			continue // shells complete those by themselves
		}
		_ = c.RegisterFlagCompletionFunc(f.Name, complete)
	}
}

// fileFlags are flags of the front's commands whose values are files.
var fileFlags = []string{"config", "image", "manifest", "key", "mirror", "to"}

type completion = cobra.CompletionFunc

func oneWord(words ...string) completion {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

// frontValues complete the values of flags that are no files.
func frontValues() map[string]completion {
	servers := oneWord("1", "3", "5")
	return map[string]completion{
		"coracle wait --for":                     oneWord("api", "node", "dns"),
		"coracle logs --level":                   oneWord("error", "warn", "info", "debug"),
		"coracle up --servers":                   servers,
		"coracle run --servers":                  servers,
		"coracle up --from":                      snapshotNames,
		"coracle run --from":                     snapshotNames,
		"coracle up list --output":               oneWord("json"),
		"coracle snapshot-cluster list --output": oneWord("json"),
		"coracle version --output":               oneWord("json", "yaml"),
		"coracle check --output":                 oneWord("text", "json"),
		"coracle upgrade --channel":              oneWord("stable", "latest"),
	}
}

// frontArguments complete what commands take besides flags. What is not here takes nothing that could be completed.
func frontArguments() map[string]completion {
	files := func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return map[string]completion{
		"coracle run":                 files,
		"coracle upgrade":             files,
		"coracle check":               oneWord("server", "agent"),
		"coracle down":                first(clusterNames),
		"coracle snapshot-cluster":    first(clusterNames),
		"coracle snapshot-cluster rm": snapshotNames,
		"coracle up logs":             clusterAndNode,
		"coracle up exec":             clusterAndNode,
		"coracle up node": func(c *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return []string{"stop", "start"}, cobra.ShellCompDirectiveNoFileComp
			}
			return clusterAndNode(c, args[1:], word)
		},
	}
}

func directories(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// first completes the first argument, and nothing after it.
func first(names func() []string) completion {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(), cobra.ShellCompDirectiveNoFileComp
	}
}

// nothing makes a command one that can be completed: the front runs it.
func nothing(*cobra.Command, []string) {}

func clusterNames() (names []string) {
	records, err := localcluster.Store{Dir: localcluster.DefaultDir}.List()
	if err != nil {
		return nil // not root
	}
	for _, r := range records {
		names = append(names, r.Name)
	}
	return names
}

// clusterAndNode completes a cluster's name, and then a node's of it.
func clusterAndNode(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []string
	switch len(args) {
	case 0:
		names = clusterNames()
	case 1:
		r, err := localcluster.Store{Dir: localcluster.DefaultDir}.Load(args[0])
		if err != nil {
			break
		}
		for _, n := range r.Nodes {
			names = append(names, n.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// snapshotNames completes a snapshot's name.
func snapshotNames(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	all, err := localcluster.Store{Dir: localcluster.DefaultDir}.Snapshots()
	if err == nil {
		for _, one := range all {
			names = append(names, one.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
