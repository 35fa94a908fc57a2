package main

import (
	"os"

	"micronode/client"
	"micronode/internal/observe"
)

// target is the node that a client command is about.
type target struct {
	Socket string `placeholder:"NAME" help:"The local socket of the node: a bare name, or a path with a slash. Wins over MICRO_URL."`
}

// dial makes a client. It does not connect: the first call does.
func (t target) dial() (*client.Client, error) { return client.New(t.options()) }

// options say which node it is.
func (t target) options() client.Options {
	o := client.Options{Socket: t.Socket, UserAgent: "micronode/" + observe.ReadBuild("micronode").Version}
	if t.Socket == "" {
		o.URL = os.Getenv("MICRO_URL")
	}
	if o.URL != "" {
		o.Token = os.Getenv("MICRO_TOKEN") // the local socket needs none
	}
	return o
}
