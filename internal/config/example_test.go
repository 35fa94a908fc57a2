package config_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"micronode/internal/config"
	"micronode/internal/flow"
)

// Gateway is the section of a service, which declares and checks it.
type Gateway struct {
	Addr string           `toml:"addr" doc:"Where it listens." restart:"true"`
	Idle config.Duration  `toml:"idle" doc:"How long a connection may be idle." seed:"idle_timeout"`
	Body config.Size      `toml:"body" doc:"The largest request body."`
	Rate config.Auto[int] `toml:"rate" doc:"Requests a second." unit:"requests/s"`
}

// Validate checks what a type cannot.
func (g *Gateway) Validate() error {
	if _, _, err := net.SplitHostPort(g.Addr); err != nil {
		return config.Invalid("addr", "Write host:port.", "%q is not an address", g.Addr)
	}
	return nil
}

// Whole is the struct that package node combines.
type Whole struct {
	Gateway Gateway `toml:"gateway" doc:"The gateway."`
}

var standard = Whole{Gateway{Addr: "127.0.0.1:8080", Idle: time.Minute, Body: config.MiB, Rate: config.Auto[int]{Auto: true}}}

// Every value knows where it came from.
func Example() {
	loaded, err := config.Load(standard, config.Sources{
		Environ: []string{"MICRO_GATEWAY__IDLE=5s", "MICRO_GATEWAY__RATE=0"},
		Flags:   []config.Flag{{Key: "gateway.addr", Value: "127.0.0.1:0", Name: "--http"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range loaded.Entries() {
		fmt.Printf("%s = %s (%s)\n", e.Key, e.Value, e.Origin)
	}
	// Output:
	// gateway.addr = 127.0.0.1:0 (flag:--http)
	// gateway.idle = 5s (env:MICRO_GATEWAY__IDLE)
	// gateway.body = 1MiB (default)
	// gateway.rate = 0 (env:MICRO_GATEWAY__RATE)
}

// All problems are reported at once.
func ExampleLoad_wrong() {
	_, err := config.Load(standard, config.Sources{
		Environ: []string{"MICRO_GATEWAY__BODY=1MB", "MICRO_GATEWAY__IDLE_TIMEOUT=5s"},
	})
	fmt.Println(err)
	// Output:
	// config.load: 2 problems
	//   env:MICRO_GATEWAY__BODY: gateway.body: found the text "1MB", want a number of bytes, or one with the unit KiB, MiB, GiB or TiB. For example: MICRO_GATEWAY__BODY=1MiB
	//   env:MICRO_GATEWAY__IDLE_TIMEOUT: gateway.idle_timeout is not a key. The nearest variable is MICRO_GATEWAY__IDLE; if it belongs to another program, unset it for the node.
}

// A reload is verified by all participants before anything changes.
func ExampleWatcher() {
	folder, err := os.MkdirTemp("", "config")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file := filepath.Join(folder, "micronode.toml")
	write := func(text string) { _ = os.WriteFile(file, []byte(text), 0o600) }
	write("gateway.idle = \"1m\"")

	load := func() (*config.Loaded[Whole], error) { return config.Load(standard, config.Sources{File: file}) }
	first, err := load()
	if err != nil {
		fmt.Println(err)
		return
	}
	var done context.CancelFunc
	watcher := config.NewWatcher(flow.NewInventory(), load, first, config.Options{
		OnResult: func(r config.Result) {
			fmt.Println(r.Outcome, r.Changed, r.NeedRestart, r.Err)
			done()
		},
	})
	watcher.AddParticipant(config.Participant[Whole]{
		Name: "gateway",
		Verify: func(_, new Whole) error {
			if new.Gateway.Idle < time.Second {
				return fmt.Errorf("nobody can answer within %s", new.Gateway.Idle)
			}
			return nil
		},
		Commit: func(new Whole) { fmt.Println("idle is now", new.Gateway.Idle) },
	})

	// A supervisor would run Serve and Watch; a signal would trigger.
	reload := func(text string) {
		write(text)
		_ = watcher.Trigger("signal")
		var ctx context.Context
		ctx, done = context.WithCancel(context.Background())
		_ = watcher.Serve(ctx)
	}
	reload("gateway.idle = \"5s\"\ngateway.addr = \":80\"")
	reload("gateway.idle = \"5ms\"")
	// Output:
	// idle is now 5s
	// applied [gateway.addr gateway.idle] [gateway.addr] <nil>
	// rejected [gateway.addr gateway.idle] [] config.reload: gateway: nobody can answer within 5ms
}
