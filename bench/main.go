// Command bench measures micronode beside the alternatives of its users.
//
// Absolute figures vary with the machine and its load, so each row measures
// both sides in one run, turn by turn, and judges the ratio of the medians. Our
// node and the peers are processes of their own, the load comes from this one,
// all on loopback. README.md says how to read the output and how to add a peer.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"micronode/bench/peers"
	"micronode/bench/testbed"
)

// options are the flags.
type options struct {
	check bool
	out   string
	only  string
	quick bool
	long  bool
	disk  int64
}

// benchmarks lists everything that is measured, in the order of the output.
func benchmarks(o options) []Benchmark {
	t := newSchedule(o.quick, o.long)
	if o.disk > 0 {
		t.disk = o.disk << 30
	}
	return slices.Concat(flowRows(t), generatorRows(t), objectRows(t), folderRows(t), packRows(t), linkRows(t), edgeRows(t), overlayRows(t), sessionRows(t), registryRows(t), indexRows(t), nodeRows(t), facetRows(t), growthAxes(t), messageAxes(t), registryAxes(t), indexAxes(t))
}

func main() {
	var o options
	flag.BoolVar(&o.check, "check", false, "exit 1 if something is below its bar")
	flag.StringVar(&o.out, "out", "", "write the results as JSON to this `file`")
	flag.StringVar(&o.only, "only", "", "measure only what has this `text` in its name")
	flag.BoolVar(&o.quick, "quick", false, "fewer and shorter turns: a look, not a verdict")
	flag.BoolVar(&o.long, "long", false, "let sessions churn for ten minutes instead of one, and logs have a million versions")
	flag.Int64Var(&o.disk, "disk", 0, "how many `GiB` move from disk to disk: three times as many must be free; without it 10, with -quick 1")
	flag.Func("profiles", "have our own overlay and registry nodes write to this `folder` where their processor time went", peers.Profile)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, o, benchmarks(o), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures, prints as it goes, and writes the file.
func run(ctx context.Context, o options, all []Benchmark, w io.Writer) error {
	all = slices.DeleteFunc(all, func(work Benchmark) bool { return !strings.Contains(work.Title(), o.only) })
	if len(all) == 0 {
		return fmt.Errorf("nothing has %q in its name", o.only)
	}
	defer longLogs.removeAll()
	whole := Run{Machine: testbed.ReadMachine(), Quick: o.quick}
	fmt.Fprintf(w, "%s\n\n", whole.Machine)
	for _, work := range all {
		result, err := measure(ctx, work)
		if err != nil {
			return fmt.Errorf("%s: %w", work.Title(), err)
		}
		result.print(w)
		whole.Results = append(whole.Results, result)
	}
	if o.out != "" {
		if err := whole.write(o.out); err != nil {
			return err
		}
	}
	if below := belowBar(whole.Results); o.check && len(below) > 0 {
		return fmt.Errorf("below the bar: %s", strings.Join(below, "; "))
	}
	return nil
}

// rowTimeout bounds one row, whatever hangs. The first one that needs Kubo
// builds it.
const rowTimeout = 40 * time.Minute

// measure gives each row a testbed of its own, and always closes it afterwards.
func measure(ctx context.Context, work Benchmark) (result Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, rowTimeout)
	defer cancel()
	g, err := testbed.New()
	if err != nil {
		return result, err
	}
	defer func() {
		if failed := g.Close(); err == nil {
			err = failed
		}
	}()
	meter := g.StartCPUMeter()
	result, err = work.Run(ctx, g)
	if err != nil {
		return result, fmt.Errorf("%w%s", err, g.ExitReport())
	}
	result.Others, result.Load = meter.OthersShare(), testbed.ReadLoad()
	return result, nil
}
