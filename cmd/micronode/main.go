// Command micronode runs a node of a content network.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"micronode/fault"
	"micronode/internal/observe"
)

// commands is the command line; each command is a file of its own.
type commands struct {
	Run     runCommand     `cmd:"" help:"Run a node, in RAM, on loopback."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// usedWrongly is the exit code of a command line that cannot be understood.
const usedWrongly = 2

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// execute runs one command and returns its exit code.
func execute(ctx context.Context, args []string) int {
	var line commands
	parser := kong.Must(&line,
		kong.Name("micronode"),
		kong.Description("A node of a content network: verified content for places that you do not control."),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	parsed, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "micronode: %v\nTry: micronode --help\n", err)
		return usedWrongly
	}
	if err := parsed.Run(); err != nil {
		return fail(err)
	}
	return 0
}

// fail says what went wrong and what to do about it, and returns the exit code
// of the error's kind.
func fail(err error) int {
	fmt.Fprintf(os.Stderr, "micronode: %v\n%s\n", err, fault.NextOf(err))
	return fault.KindOf(err).Exit()
}

type versionCommand struct{}

// Run prints what this binary is.
func (versionCommand) Run() error {
	build := observe.ReadBuild("micronode")
	fmt.Printf("micronode %s (%s, %s)\n", build.Version, build.Commit, build.Go)
	return nil
}
