package main

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/node"
	"micronode/internal/supervise"
)

type runCommand struct {
	setup
	HTTP      *string  `name:"http" placeholder:"ADDR" help:"Where the gateway listens; port 0 picks a free one."`
	Admin     *string  `placeholder:"ADDR" help:"Where the admin plane listens; port 0 picks a free one."`
	Overlay   *string  `placeholder:"ADDR" help:"Where other nodes connect to; port 0 picks a free one."`
	Peer      []string `placeholder:"ID@HOST:PORT" sep:"none" help:"Another node to connect to, as its banner names it. Repeat for more."`
	Only      *string  `placeholder:"PART,…" complete:"store,gateway,overlay,index,edge,registry" help:"Run these parts of a node and no others, of store, gateway, overlay, index, edge and registry. Where the others are is in [node.parts]. Separate them with commas."`
	Persist   string   `placeholder:"DIR" complete:"file" help:"Keep things in this folder, and write nowhere else. Without it, everything is gone at exit."`
	Pack      []string `placeholder:"FILE" complete:"file" sep:"none" help:"A map pack to serve: PMTiles or MBTiles, or a folder of them. Repeat for more."`
	Allow     []string `placeholder:"HOST" sep:"none" help:"An origin that may be fetched from by HTTPS, and is cached. Repeat for more."`
	Identity  *string  `placeholder:"SPEC" help:"The node's key: ephemeral, file:PATH, env:VARIABLE or fd:NUMBER."`
	LogFormat *string  `placeholder:"FORMAT" complete:"text,json" help:"How log lines are written to standard error: text or json."`
	LogLevel  *string  `placeholder:"LEVEL" complete:"debug,info,warn,error" help:"The least important lines that are written: debug, info, warn or error."`
	Open      bool     `help:"Ask nobody for a capability. For a playground; refused unless every listener is loopback."`
	Socket    string   `placeholder:"NAME" help:"The local socket: a bare name, or a path with a slash."`
	printing
}

// Help is shown by run --help.
func (runCommand) Help() string {
	return `The node keeps everything in RAM, and where the kernel can, it keeps the node from writing to disk. With --persist it keeps objects, its key and what it fetched in one folder, and may write nowhere else. It listens on loopback only unless told otherwise. SIGHUP and a change of the configuration file reload the configuration. The first Ctrl-C drains, the second one ends it at once.

AMNESIA=1 says that nothing may outlive the node, and refuses --persist; AMNESIA=0 says that it must be there. MICRO_THREADS=n limits how many threads run at once. Every setting can be given as MICRO_SECTION__KEY too.

Examples:

    micronode run
    micronode run --pack city.pmtiles
    micronode run --allow tiles.example.org
    micronode run --persist ~/node
    micronode run --overlay 10.0.0.7:9500 --peer wq3…@10.0.0.8:9500
    micronode run --http 127.0.0.1:0 --identity file:node.key
    micronode run --config micronode.toml --json
    micronode run --config micronode.toml --only gateway,store

With --only, a node is several processes. All have the same auth.root and node.identity, and the same section [node.parts], which says where each part runs. They may start in any order; each has its own local socket, named after the first part that it runs: @micronode-<uid>.gateway. Without the gateway, a process takes any free port unless it is told one.`
}

// only is the parts that are to run. To name none of them is a mistake, not a
// way to say all.
func (r *runCommand) only() []string {
	if r.Only == nil {
		return nil
	}
	return strings.Split(*r.Only, ",")
}

// flags are the settings on the command line.
func (r *runCommand) flags() []config.Flag {
	var list []config.Flag
	for _, one := range []struct {
		key, name string
		value     *string
	}{
		{"http.addr", "--http", r.HTTP},
		{"admin.addr", "--admin", r.Admin},
		{"overlay.addr", "--overlay", r.Overlay},
		{"node.identity", "--identity", r.Identity},
		{"log.format", "--log-format", r.LogFormat},
		{"log.level", "--log-level", r.LogLevel},
	} {
		if one.value != nil {
			list = append(list, config.Flag{Key: one.key, Name: one.name, Value: *one.value})
		}
	}
	for _, peer := range r.Peer {
		list = append(list, config.Flag{Key: "overlay.peers", Name: "--peer", Value: peer})
	}
	for _, pack := range r.Pack {
		list = append(list, config.Flag{Key: "edge.packs", Name: "--pack", Value: pack})
	}
	for _, host := range r.Allow {
		list = append(list, config.Flag{Key: "edge.allow", Name: "--allow", Value: host})
	}
	return list
}

// Run runs a node until it is told to stop, then prints how the drain went.
func (r *runCommand) Run(ctx context.Context, c *console) error {
	if err := checkAmnesia(os.Getenv("AMNESIA"), r.Persist); err != nil {
		return err
	}
	if err := limitThreads(os.Getenv("MICRO_THREADS")); err != nil {
		return err
	}
	n, err := node.New(ctx, node.Options{
		Profile: r.Profile, Sources: r.sources(r.flags()...), Only: r.only(), Socket: r.Socket, Persist: r.Persist, Open: r.Open, Log: c.err,
	})
	if err != nil {
		return err
	}
	end, err := onSignals(func(os.Signal) { n.Reload("SIGHUP") }, syscall.SIGHUP)
	if err != nil {
		return err
	}
	defer end()
	c.banner(n.Info(), n.Status().Listen.Overlay, r.Socket)
	report, err := n.Run(ctx)
	c.ended(report)
	return err
}

// checkAmnesia obeys the variable by which an operator insists on amnesia, or
// on its opposite.
func checkAmnesia(value, persist string) error {
	const op = "run"
	switch {
	case value == "", value == "1" && persist == "", value == "0" && persist != "":
		return nil
	case value == "0":
		return &fault.Error{Op: op, Kind: fault.RejectPolicy, Detail: "AMNESIA=0 asks for a node that keeps things, and nobody said where",
			Next: "Name a folder with --persist DIR, or unset AMNESIA to run in RAM."}
	case value == "1":
		return &fault.Error{Op: op, Kind: fault.RejectPolicy, Detail: "AMNESIA=1 asks for a node that keeps nothing, and --persist for one that does",
			Next: "Leave --persist out, or unset AMNESIA."}
	default:
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "AMNESIA is " + strconv.Quote(value),
			Next: "Set it to 1 for a node that keeps nothing, or to 0 for one with --persist; or unset it."}
	}
}

// limitThreads sets how many threads run Go code at once. Without a limit it is
// all cores.
func limitThreads(value string) error {
	if value == "" {
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return &fault.Error{Op: "run", Kind: fault.Malformed, Detail: "MICRO_THREADS is " + strconv.Quote(value),
			Next: "Set it to a whole number from 1 on, or unset it for all cores."}
	}
	runtime.GOMAXPROCS(n)
	return nil
}

// stopped is the report of a shutdown, for a program.
type stopped struct {
	Event        string   `json:"event"`
	Reason       string   `json:"reason"`
	Milliseconds int64    `json:"took_ms"`
	Restarts     uint64   `json:"restarts"`
	Aborted      []string `json:"aborted"`
	LeftRunning  []string `json:"left_running"`
}

// ended prints how the drain went: for a person where the log is.
func (c *console) ended(report *supervise.Report) {
	switch {
	case report == nil:
	case c.json:
		c.printJSON(stopped{"stopped", report.Reason, report.Took.Milliseconds(), report.Restarts,
			append([]string{}, report.Aborted...), append([]string{}, report.LeftRunning...)})
	default:
		_, _ = c.err.Write([]byte(report.String()))
	}
}
