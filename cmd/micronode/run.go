package main

import (
	"cmp"
	"context"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/ingress"
	"micronode/internal/node"
	"micronode/internal/supervise"
)

type runCommand struct {
	configFlags
	HTTP      *string  `name:"http" placeholder:"ADDR" help:"The listen address of the gateway; port 0 picks a free one."`
	Admin     *string  `placeholder:"ADDR" help:"The listen address of the admin plane; port 0 picks a free one."`
	Overlay   *string  `placeholder:"ADDR" help:"The listen address of the overlay; port 0 picks a free one."`
	Peer      []string `placeholder:"ID@HOST:PORT" sep:"none" help:"A peer to connect to, as its banner prints it. Repeat for more."`
	Only      *string  `placeholder:"PART,…" complete:"store,gateway,overlay,index,edge,registry,mailbox,feed,graph,search,media" help:"Run only these parts of a node: store, gateway, overlay, index, edge, registry, mailbox, feed, graph, search, media. The addresses of the others are in [node.parts]. Separate them with commas."`
	Persist   string   `placeholder:"DIR" complete:"file" help:"Store all state in this folder, and write nowhere else. Without it, everything is gone at exit."`
	Pack      []string `placeholder:"FILE" complete:"file" sep:"none" help:"A map pack to serve: PMTiles or MBTiles, or a folder of them. Repeat for more."`
	Allow     []string `placeholder:"HOST" sep:"none" help:"An origin that the edge may fetch from by HTTPS and cache. Repeat for more."`
	Public    bool     `help:"Let strangers read objects, tiles, assets and sites: a map or a site that anybody can open. See http.public."`
	Domain    []string `placeholder:"NAME" sep:"none" help:"A name that leads to this node in DNS: obtain a certificate for it, and listen on ports 443 and 80. Repeat for more. See http.acme."`
	Staging   bool     `name:"domain-staging" help:"Obtain certificates that browsers do not trust, from an authority for trying it out."`
	LAN       bool     `name:"lan" help:"Listen in private networks too, without TLS and for reads only, and find nodes there by DNS-SD. See http.lan and overlay.lan."`
	CORS      []string `name:"cors" placeholder:"ORIGIN" sep:"none" help:"An origin whose pages may use this node, like https://maps.example.org. Repeat for more."`
	Identity  *string  `placeholder:"SPEC" help:"The node's key: ephemeral, file:PATH, env:VARIABLE or fd:NUMBER."`
	LogFormat *string  `placeholder:"FORMAT" complete:"text,json" help:"The format of the log on standard error: text or json."`
	LogLevel  *string  `placeholder:"LEVEL" complete:"debug,info,warn,error" help:"The minimum level of log lines: debug, info, warn or error."`
	Open      bool     `help:"Require no capability. For a playground; refused unless every listener is loopback."`
	Socket    string   `placeholder:"NAME" help:"The local socket: a bare name, or a path with a slash."`
	Verbose   bool     `help:"When the node stops, print who stopped when, even if all went well."`
	outputFlags
}

// Help is shown by run --help.
func (runCommand) Help() string {
	return `The node keeps everything in RAM, and Landlock, where the kernel has it, prevents writes to disk. With --persist it stores all state in one folder, and can write nowhere else. By default it listens on loopback only. SIGHUP and a change of the configuration file reload the configuration. The first Ctrl-C drains the node, the second one stops it at once.

If another program has a default port, the next free one is used, and the banner says so. A second node on one machine needs one flag: --socket NAME. Client commands then find it with --socket NAME or MICRO_SOCKET=NAME.

AMNESIA=1 refuses --persist; AMNESIA=0 requires it. MICRO_THREADS=n limits the number of concurrent threads. Every setting can also be given as MICRO_SECTION__KEY.

Examples:

    micronode run
    micronode run --socket second
    micronode run --pack city.pmtiles
    micronode run --allow tiles.example.org
    micronode run --domain maps.example.org --public --pack city.pmtiles --persist ~/node
    micronode run --lan --pack city.pmtiles
    micronode run --persist ~/node
    micronode run --overlay 10.0.0.7:9500 --peer wq3…@10.0.0.8:9500
    micronode run --http 127.0.0.1:0 --identity file:node.key
    micronode run --config micronode.toml --json
    micronode run --config micronode.toml --only gateway,store

With --only, a node is several processes. All have the same auth.root and node.identity, and the same section [node.parts], which has the address of each part. They may start in any order; each has its own local socket, named after the first part that it runs: @micronode-<uid>.gateway. Without the gateway, a process listens on a free port unless --http or --admin sets one.`
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
	for _, name := range r.Domain {
		list = append(list, config.Flag{Key: "http.acme.domains", Name: "--domain", Value: name})
	}
	if r.Staging {
		list = append(list, config.Flag{Key: "http.acme.directory", Name: "--domain-staging", Value: ingress.ACMEStaging})
	}
	if r.LAN {
		list = append(list, config.Flag{Key: "http.lan", Name: "--lan", Value: "true"}, config.Flag{Key: "overlay.lan", Name: "--lan", Value: "true"})
	}
	for _, origin := range r.CORS {
		list = append(list, config.Flag{Key: "http.cors", Name: "--cors", Value: origin})
	}
	if r.Public {
		for _, group := range ingress.UsualPublic {
			list = append(list, config.Flag{Key: "http.public", Name: "--public", Value: string(group)})
		}
	}
	for _, host := range r.Allow {
		list = append(list, config.Flag{Key: "edge.allow", Name: "--allow", Value: host})
	}
	return list
}

// Run runs a node until it is stopped, then prints the drain report.
func (r *runCommand) Run(ctx context.Context, c *console) error {
	if err := checkAmnesia(os.Getenv("AMNESIA"), r.Persist); err != nil {
		return err
	}
	if err := limitThreads(os.Getenv("MICRO_THREADS")); err != nil {
		return err
	}
	var only []string // all
	if r.Only != nil {
		only = strings.Split(*r.Only, ",") // of an empty text it is a part without a name, which is an error
	}
	r.Socket = cmp.Or(r.Socket, os.Getenv("MICRO_SOCKET"))
	n, err := node.New(ctx, node.Options{
		Profile: r.Profile, Sources: r.sources(r.flags()...), Only: only, Socket: r.Socket, Persist: r.Persist, Open: r.Open, Log: c.err,
		System: systemOf(os.Getenv),
	})
	if err != nil {
		return err
	}
	end, err := onSignals(func(os.Signal) { n.Reload("SIGHUP") }, syscall.SIGHUP)
	if err != nil {
		return err
	}
	defer end()
	c.printBanner(n.Info(), n.Status().Listen.Overlay, r.Socket)
	report, err := n.Run(ctx)
	c.printDrainReport(report, n.Lost(), r.Verbose)
	return err
}

// checkAmnesia applies the variable AMNESIA, by which an operator requires
// amnesia, or its opposite.
func checkAmnesia(value, persist string) error {
	const op = "run"
	switch {
	case value == "", value == "1" && persist == "", value == "0" && persist != "":
		return nil
	case value == "0":
		return &fault.Error{Op: op, Kind: fault.RejectPolicy, Detail: "AMNESIA=0 requires --persist",
			Next: "Name a folder with --persist DIR, or unset AMNESIA to run in RAM."}
	case value == "1":
		return &fault.Error{Op: op, Kind: fault.RejectPolicy, Detail: "AMNESIA=1 and --persist contradict each other",
			Next: "Leave out --persist, or unset AMNESIA."}
	default:
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "AMNESIA is " + strconv.Quote(value),
			Next: "Set it to 1 for a node in RAM, to 0 for a node with --persist, or unset it."}
	}
}

// limitThreads sets how many threads run Go code at once. Without a limit it
// is all cores.
func limitThreads(value string) error {
	if value == "" {
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return &fault.Error{Op: "run", Kind: fault.Malformed, Detail: "MICRO_THREADS is " + strconv.Quote(value),
			Next: "Set it to a whole number of at least 1, or unset it to use all cores."}
	}
	runtime.GOMAXPROCS(n)
	return nil
}

// stoppedEvent is the report of a shutdown as JSON.
type stoppedEvent struct {
	Event        string   `json:"event"`
	Reason       string   `json:"reason"`
	Milliseconds int64    `json:"took_ms"`
	Restarts     uint64   `json:"restarts"`
	Aborted      []string `json:"aborted"`
	LeftRunning  []string `json:"left_running"`
	Lost         []string `json:"lost"` // what it had accepted and kept in memory only
}

// printDrainReport prints the drain report: as text, it goes to standard
// error, as the log does. A clean one is a line.
func (c *console) printDrainReport(report *supervise.Report, lost []string, verbose bool) {
	loss := "nothing lost"
	if len(lost) > 0 {
		loss = "lost with it: " + strings.Join(lost, ", ") + ". Run the node with --persist DIR to keep what it has accepted."
	}
	switch {
	case report == nil:
	case c.json:
		c.printJSON(stoppedEvent{"stopped", report.Reason, report.Took.Milliseconds(), report.Restarts,
			append([]string{}, report.Aborted...), append([]string{}, report.LeftRunning...), append([]string{}, lost...)})
	case report.WasClean() && !verbose:
		_, _ = io.WriteString(c.err, report.Line()+", "+loss+"\n")
	default:
		_, _ = io.WriteString(c.err, report.String())
		if len(lost) > 0 {
			_, _ = io.WriteString(c.err, loss+"\n")
		}
	}
}

type migrateCommand struct {
	Folder string `arg:"" complete:"file" help:"The folder of run --persist."`
	outputFlags
}

// Help is shown by migrate --help.
func (migrateCommand) Help() string {
	return `Stop the node of the folder and back the folder up first.

Example:

    micronode migrate ~/node`
}

// Run migrates a folder.
func (m *migrateCommand) Run(c *console) error {
	done, err := node.Migrate(m.Folder)
	if err != nil {
		return err
	}
	switch {
	case c.json:
		c.printJSON(done)
	case done.From == done.To:
		c.print("%s already has format %d; nothing to do\n", done.Folder, done.To)
	default:
		c.print("%s migrated from format %d to %d\n", done.Folder, done.From, done.To)
	}
	return nil
}
