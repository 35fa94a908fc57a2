package main

import (
	"context"

	"github.com/alecthomas/kong"
)

// commands is the command line; each command is a file of its own.
type commands struct {
	Run        runCommand        `cmd:"" group:"node" help:"Run a node; in RAM and on loopback unless told otherwise."`
	Status     statusCommand     `cmd:"" group:"node" help:"What the node does, and why it is not ready if it is not."`
	Top        topCommand        `cmd:"" group:"node" help:"A live view of what the node does."`
	Demo       demoCommand       `cmd:"" group:"node" help:"Show what nodes can do, with real ones on this machine; nothing is left afterwards."`
	Doctor     doctorCommand     `cmd:"" group:"node" help:"Check whether this machine is fit for a node."`
	Bench      benchCommand      `cmd:"" group:"node" help:"Measure how fast the node is, from this machine; nothing is left afterwards."`
	Config     configCommand     `cmd:"" group:"node" help:"Check and show the configuration."`
	Migrate    migrateCommand    `cmd:"" group:"node" help:"Bring a --persist folder to the format of this version."`
	Put        putCommand        `cmd:"" group:"objects" help:"Store files and folders, and print their addresses."`
	Get        getCommand        `cmd:"" group:"objects" help:"Fetch an object or a folder, and verify it."`
	Rm         rmCommand         `cmd:"" group:"objects" help:"Remove objects from the node."`
	Name       nameCommand       `cmd:"" group:"index" help:"Set, show and remove the names of the node."`
	Resolve    resolveCommand    `cmd:"" group:"index" help:"What a name or an address stands for, and who has it."`
	Providers  providersCommand  `cmd:"" group:"index" help:"Who has an object, the best first."`
	Pin        pinCommand        `cmd:"" group:"index" help:"Make the node keep objects, however full it is."`
	Unpin      unpinCommand      `cmd:"" group:"index" help:"Let objects go when the node needs the room."`
	Reindex    reindexCommand    `cmd:"" group:"index" help:"Make the node announce again all that it has."`
	Pub        pubCommand        `cmd:"" group:"overlay" help:"Publish a message to a topic."`
	Sub        subCommand        `cmd:"" group:"overlay" help:"Print what is published to a topic."`
	Peers      peersCommand      `cmd:"" group:"overlay" help:"Show, add and remove the nodes that the node is connected to."`
	Mbox       mboxCommand       `cmd:"" group:"mailbox" help:"Send and receive messages that are kept until somebody has dealt with them."`
	Registry   registryCommand   `cmd:"" group:"registry" help:"A list that a team governs together: propose, approve, commit, verify."`
	Follow     followCommand     `cmd:"" group:"facets" help:"Make one follow another."`
	Unfollow   unfollowCommand   `cmd:"" group:"facets" help:"Make one not follow another."`
	Neighbours neighboursCommand `cmd:"" group:"facets" help:"Those around somebody, the nearest first."`
	Feed       feedCommand       `cmd:"" group:"facets" help:"Post to those who follow, and read feeds."`
	Search     searchCommand     `cmd:"" group:"facets" help:"Find names, files and texts of the node by words."`
	Identity   identityCommand   `cmd:"" group:"keys" help:"Make and show the key by which others know a node."`
	Token      tokenCommand      `cmd:"" group:"keys" help:"Make, narrow and read capabilities."`
	Version    versionCommand    `cmd:"" group:"rest" help:"Print the version of this program."`
	Completion completionCommand `cmd:"" group:"rest" help:"Print a script that completes commands in a shell."`
}

const description = `A node of a content network: verified content for places that you do not control.

Client commands talk to the node of this user on this machine, over its local socket. MICRO_URL and MICRO_TOKEN point at another one.

The exit code is 0 if all was done, 2 if the command line makes no sense, and otherwise tells the kind of error.`

func newParser(ctx context.Context, c *console) *kong.Kong {
	return kong.Must(&commands{},
		kong.Name("micronode"),
		kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "node", Title: "The node:"},
			{Key: "objects", Title: "Objects:"},
			{Key: "index", Title: "Names and who has what:"},
			{Key: "overlay", Title: "Other nodes:"},
			{Key: "mailbox", Title: "Messages:"},
			{Key: "registry", Title: "The registry:"},
			{Key: "facets", Title: "Feeds, graphs, search:"},
			{Key: "keys", Title: "Keys:"},
			{Key: "rest", Title: "This program:"},
		}),
		kong.Writers(c.out, c.err),
		kong.Bind(c),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
}
