package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// tokenCommand makes and manages tokens.
func tokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "token",
		Long: `Make and manage tokens with which machines join the cluster. It needs root, on a server.

A token is a bootstrap token of Kubernetes, and says which cluster it is for: a machine that joins with it talks to
no other. It is a secret. One for agents can do nothing but let a machine in as a node; one for servers gives the
cluster's keys.`,
	}
	return command.Group(c, tokenCreateCommand(), tokenListCommand(), tokenDeleteCommand(), tokenRotateCommand(), joinCommand())
}

// newToken holds the flags of commands that make a token.
type newToken struct {
	role        *string
	ttl         time.Duration
	description string
	replace     bool
}

func newTokenFlags(c *cobra.Command) *newToken {
	o := &newToken{role: command.ChoiceFlag(c, "role", "", string(config.Agent),
		"What may be joined as: agent, or server, which is good for agents too", string(config.Agent), string(config.Server))}
	c.Flags().DurationVar(&o.ttl, "ttl", 24*time.Hour, "How long the token is good; 0 is for ever")
	c.Flags().StringVar(&o.description, "description", "", "What the token is for, for people")
	c.Flags().BoolVar(&o.replace, "allow-replace", false, "Let machines that join with it take the place of others, with --replace-node")
	return o
}

// make makes a token as the flags say.
func (o *newToken) make(ctx context.Context, a admin) (madeToken, error) {
	if o.ttl < 0 {
		return madeToken{}, exitcode.Usagef("--ttl is %s: it must not be negative", o.ttl)
	}
	text := join.NewToken(a.pin)
	t := endpoint.Token{ID: text.ID, Secret: text.Secret, Role: config.Role(*o.role), Replace: o.replace, Description: o.description}
	if o.ttl > 0 {
		t.Expires = time.Now().Add(o.ttl).Truncate(time.Second)
	}
	return madeToken{listedToken: listed(t), Token: text.Text()}, endpoint.Create(ctx, a.client, t)
}

// listedToken is a token without its secret; madeToken includes the secret.
type listedToken struct {
	ID           string      `json:"id"`
	Role         config.Role `json:"role"`
	AllowReplace bool        `json:"allowReplace"`
	Description  string      `json:"description,omitempty"`
	Expires      time.Time   `json:"expires,omitzero"`
	Expired      bool        `json:"expired"`
	// Server is the server that was started with the token, if any.
	Server string `json:"startedOn,omitempty"`
}

type madeToken struct {
	listedToken
	Token string `json:"token"`
}

func listed(t endpoint.Token) listedToken {
	return listedToken{ID: t.ID, Role: t.Role, AllowReplace: t.Replace, Description: t.Description, Expires: t.Expires, Expired: t.Expired(), Server: t.From}
}

// show prints the token only, so that output can be piped.
func (t madeToken) show(w io.Writer, format string) error {
	return command.Print(w, format, t, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, t.Token)
		return err
	})
}

func tokenCreateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "create",
		Short: "Make a token and print it",
		Long:  `Make a token and print it: the only time that all of it is shown.`,
		Example: `# For an agent that joins today
coracle token create > token

# For more servers, this week
coracle token create --role server --ttl 168h --description "the rack in the cellar"

# For a machine that takes the place of one that has burnt
coracle token create --allow-replace --ttl 1h`,
		Args: command.NoArgs,
	}
	options := newTokenFlags(c)
	output := command.OutputFlag(c, "text", "text", "json", "yaml")
	return with(c, installation.administer, func(c *cobra.Command, a admin, _ []string) error {
		t, err := options.make(c.Context(), a)
		if err != nil {
			return err
		}
		return t.show(c.OutOrStdout(), *output)
	})
}

func tokenListCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List tokens, without their secrets",
		Args:    command.NoArgs,
	}
	output := command.OutputFlag(c, "", "json", "yaml")
	return with(c, installation.administer, func(c *cobra.Command, a admin, _ []string) error {
		tokens, err := endpoint.Tokens(c.Context(), a.client)
		if err != nil {
			return err
		}
		all := []listedToken{} // an empty list, not null, in JSON
		for _, t := range tokens {
			all = append(all, listed(t))
		}
		return command.Print(c.OutOrStdout(), *output, all, func(w io.Writer) error { return printTokens(w, all, time.Now()) })
	})
}

func printTokens(out io.Writer, all []listedToken, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "ID\tROLE\tEXPIRES\tMAY REPLACE\tDESCRIPTION")
	for _, t := range all {
		expires := "never"
		switch {
		case t.Expired:
			expires = "expired"
		case !t.Expires.IsZero():
			expires = "in " + t.Expires.Sub(now).Round(time.Minute).String()
		}
		description := t.Description
		if t.Server != "" {
			description += " (" + t.Server + " is started with it)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.ID, t.Role, expires, yesNo(t.AllowReplace), description)
	}
	return w.Flush()
}

func tokenDeleteCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "delete ID...",
		Aliases: []string{"rm"},
		Short:   "Delete tokens, so that no machine can join with them any more",
		Long: `Delete tokens, so that no machine can join with them any more. Machines that have joined stay.

An ID is the part of a token before the point, as coracle token list shows it.`,
		Args:              someTokens,
		ValidArgsFunction: completeTokens,
	}
	return with(c, installation.administer, func(c *cobra.Command, a admin, ids []string) error {
		tokens, err := endpoint.Tokens(c.Context(), a.client)
		if err != nil {
			return err
		}
		for _, id := range ids {
			id = tokenID(id)
			if err := endpoint.Remove(c.Context(), a.client, id); err != nil {
				return err
			}
			for _, t := range tokens {
				if t.ID == id && t.From != "" {
					logrus.Warnf("server %s makes token %s again when it starts: take --token out of its configuration, or rotate the token instead", t.From, id)
				}
			}
			fmt.Fprintf(c.ErrOrStderr(), "Deleted token %s.\n", id)
		}
		return nil
	})
}

func tokenRotateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "rotate ID",
		Short: "Give a token another secret and print it",
		Long: `Give a token another secret and print it. The old secret is of no use from then on; machines that have joined stay.

That holds for a token that servers are started with too, even where one still is: give them the new one.`,
		Args:              cobra.MatchAll(someTokens, cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeTokens,
	}
	output := command.OutputFlag(c, "text", "text", "json", "yaml")
	return with(c, installation.administer, func(c *cobra.Command, a admin, ids []string) error {
		text := join.NewToken(a.pin)
		t, err := endpoint.Rotate(c.Context(), a.client, tokenID(ids[0]), text.Secret)
		if err != nil {
			return err
		}
		text.ID = t.ID
		return madeToken{listedToken: listed(t), Token: text.Text()}.show(c.OutOrStdout(), *output)
	})
}

// tokenID returns the ID of an argument, which may also be a whole token.
func tokenID(arg string) string {
	if t, err := join.ParseToken(arg); err == nil && t.Text() == arg {
		return t.ID
	}
	return arg
}

func someTokens(_ *cobra.Command, ids []string) error {
	if len(ids) == 0 {
		return exitcode.Usagef("name a token by its ID, which coracle token list shows")
	}
	return nil
}

func completeTokens(c *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var ids []cobra.Completion
	if a, err := find().administer(); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		tokens, _ := endpoint.Tokens(ctx, a.client)
		for _, t := range tokens {
			if !slices.Contains(given, t.ID) {
				ids = append(ids, cobra.CompletionWithDesc(t.ID, t.Description))
			}
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
