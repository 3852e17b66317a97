package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/progress"
)

// Confirm asks for confirmation of what cannot be undone. Without a terminal it fails.
func Confirm(in io.Reader, out io.Writer, what string) error {
	f, ok := in.(*os.File)
	if !ok || !progress.IsTerminal(f) {
		return exitcode.Usagef("nobody is here to confirm this: give --yes")
	}
	fmt.Fprint(out, what+"Type yes to go on: ")
	answer, err := bufio.NewReader(f).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return errors.New("not confirmed: nothing was changed")
	}
	return nil
}
