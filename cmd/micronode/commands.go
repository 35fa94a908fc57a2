package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"reflect"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/observe"
)

// commands is the command line; related commands share a file.
type commands struct {
	Run        runCommand        `cmd:"" group:"node" help:"Run a node. By default it stays in RAM and on loopback."`
	Status     statusCommand     `cmd:"" group:"node" help:"Show the state of the node, and why it is not ready."`
	Top        topCommand        `cmd:"" group:"node" help:"Show a live view of the node."`
	UI         uiCommand         `cmd:"" name:"ui" group:"node" help:"Open the page of the node in a browser, by a link that works once."`
	Events     eventsCommand     `cmd:"" group:"node" help:"Print the events of the node as they happen."`
	Stop       stopCommand       `cmd:"" group:"node" help:"Drain the node and stop it."`
	Demo       demoCommand       `cmd:"" group:"node" help:"Run a demonstration with real nodes on this machine; nothing is left afterwards."`
	Doctor     doctorCommand     `cmd:"" group:"node" help:"Check whether this machine is fit for a node."`
	Bench      benchCommand      `cmd:"" group:"node" help:"Measure the speed of the node from this machine; nothing is left afterwards."`
	Config     configCommand     `cmd:"" group:"node" help:"Check and show the configuration."`
	Migrate    migrateCommand    `cmd:"" group:"node" help:"Upgrade a --persist folder to the format of this version."`
	Backup     backupCommand     `cmd:"" group:"node" help:"Write a backup of a --persist folder, while the node runs."`
	Restore    restoreCommand    `cmd:"" group:"node" help:"Make a --persist folder of a backup."`
	Put        putCommand        `cmd:"" group:"objects" help:"Store files and folders, and print their addresses."`
	Share      shareCommand      `cmd:"" group:"objects" help:"Store a file or folder, and print the line that fetches it on another machine."`
	Get        getCommand        `cmd:"" group:"objects" help:"Fetch an object or a folder, and verify it."`
	Ls         lsCommand         `cmd:"" group:"objects" help:"List the objects of the node."`
	Du         duCommand         `cmd:"" group:"objects" help:"Show how much each name takes."`
	Gc         gcCommand         `cmd:"" group:"objects" help:"Remove what is neither pinned nor named."`
	Rm         rmCommand         `cmd:"" group:"objects" help:"Remove objects, or names with their content, from the node."`
	Name       nameCommand       `cmd:"" group:"index" help:"Set, show and remove the names of the node."`
	Resolve    resolveCommand    `cmd:"" group:"index" help:"Resolve a name or an address, and list its providers."`
	Providers  providersCommand  `cmd:"" group:"index" help:"List the providers of an object, best first."`
	Pin        pinCommand        `cmd:"" group:"index" help:"Pin objects, so that the node never evicts them."`
	Unpin      unpinCommand      `cmd:"" group:"index" help:"Unpin objects, so that the node may evict them."`
	Reindex    reindexCommand    `cmd:"" group:"index" help:"Announce all objects of the node again."`
	Pub        pubCommand        `cmd:"" group:"overlay" help:"Publish a message to a topic."`
	Sub        subCommand        `cmd:"" group:"overlay" help:"Subscribe to a topic, and print its messages."`
	Invite     inviteCommand     `cmd:"" group:"overlay" help:"Print a string that lets another node join this one."`
	Join       joinCommand       `cmd:"" group:"overlay" help:"Join the node that printed an invitation."`
	Peers      peersCommand      `cmd:"" group:"overlay" help:"Show, accept, add and remove peers."`
	Mbox       mboxCommand       `cmd:"" group:"mailbox" help:"Send and receive messages that are kept until they are acknowledged."`
	Registry   registryCommand   `cmd:"" group:"registry" help:"Govern a list together: propose, approve, commit, verify."`
	Follow     followCommand     `cmd:"" group:"facets" help:"Make one user follow another."`
	Unfollow   unfollowCommand   `cmd:"" group:"facets" help:"Stop one user from following another."`
	Neighbours neighboursCommand `cmd:"" group:"facets" help:"List the neighbours of a user, nearest first."`
	Feed       feedCommand       `cmd:"" group:"facets" help:"Post to followers, and read feeds."`
	Search     searchCommand     `cmd:"" group:"facets" help:"Search the names, files and texts of the node."`
	Identity   identityCommand   `cmd:"" group:"keys" help:"Create and show the key of a node."`
	Token      tokenCommand      `cmd:"" group:"keys" help:"Create, narrow, show and revoke capabilities."`
	Version    versionCommand    `cmd:"" group:"rest" help:"Print the version of this program."`
	Upgrade    upgradeCommand    `cmd:"" group:"rest" help:"Compare this program with a release, and verify who released it."`
	Help       helpCommand       `cmd:"" group:"rest" help:"Print the help of a command."`
	Completion completionCommand `cmd:"" group:"rest" help:"Print a script that completes commands in a shell."`
	Man        manCommand        `cmd:"" hidden:"" help:"Print the manual page."`
}

const description = `A node of a content network: verified content for places that you do not control.

Client commands talk to the node of this user on this machine, over its local socket. Set MICRO_SOCKET to use another socket, or MICRO_URL and MICRO_TOKEN to use a node elsewhere.

The exit code is 0 on success, 2 for an invalid command line, and otherwise the code of the error kind.`

func newParser(ctx context.Context, c *console) *kong.Kong {
	return kong.Must(&commands{},
		kong.Name("micronode"),
		kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "node", Title: "The node:"},
			{Key: "objects", Title: "Objects:"},
			{Key: "index", Title: "Names and providers:"},
			{Key: "overlay", Title: "Other nodes:"},
			{Key: "mailbox", Title: "Messages:"},
			{Key: "registry", Title: "The registry:"},
			{Key: "facets", Title: "Feeds, graphs, search:"},
			{Key: "keys", Title: "Keys:"},
			{Key: "rest", Title: "This program:"},
		}),
		kong.Writers(c.out, c.err),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(parseDuration)),
		kong.Bind(c),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
}

// parseDuration reads a duration on the command line, days too.
func parseDuration(c *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := c.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := config.ParseDuration(text)
	if err != nil {
		return errors.New("expected a duration such as 90s, 24h or 7d, but got " + strconv.Quote(text))
	}
	target.SetInt(int64(d))
	return nil
}

// nodeFlags selects the node of a client command.
type nodeFlags struct {
	Socket string `placeholder:"NAME" help:"The local socket of the node: a bare name, or a path with a slash. Overrides MICRO_SOCKET and MICRO_URL."`
}

// dial makes a client. It does not connect: the first call does.
func (n nodeFlags) dial() (*client.Client, error) {
	if n.Socket == "" && os.Getenv("MICRO_SOCKET") != "" && os.Getenv("MICRO_URL") != "" {
		return nil, &fault.Error{Op: "client.new", Kind: fault.Malformed, Detail: "MICRO_SOCKET and MICRO_URL name two nodes",
			Next: "Unset one of them, or name the node with --socket."}
	}
	return client.New(n.options())
}

// options are the client options for that node.
func (n nodeFlags) options() client.Options {
	o := client.Options{Socket: cmp.Or(n.Socket, os.Getenv("MICRO_SOCKET")), UserAgent: "micronode/" + observe.ReadBuild("micronode").Version}
	if o.Socket == "" {
		o.URL = os.Getenv("MICRO_URL")
	}
	if o.URL != "" {
		o.Token = os.Getenv("MICRO_TOKEN") // the local socket needs none
	}
	return o
}
