package main

import (
	"os"

	"micronode/client"
	"micronode/internal/observe"
)

// nodeFlags selects the node of a client command.
type nodeFlags struct {
	Socket string `placeholder:"NAME" help:"The local socket of the node: a bare name, or a path with a slash. Overrides MICRO_URL."`
}

// dial makes a client. It does not connect: the first call does.
func (n nodeFlags) dial() (*client.Client, error) { return client.New(n.options()) }

// options are the client options for that node.
func (n nodeFlags) options() client.Options {
	o := client.Options{Socket: n.Socket, UserAgent: "micronode/" + observe.ReadBuild("micronode").Version}
	if n.Socket == "" {
		o.URL = os.Getenv("MICRO_URL")
	}
	if o.URL != "" {
		o.Token = os.Getenv("MICRO_TOKEN") // the local socket needs none
	}
	return o
}
