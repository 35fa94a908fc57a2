package main

import (
	"context"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/supervise"
)

// interruptError is the cause of a context that a signal ended.
type interruptError struct{ signal os.Signal }

// Error names the signal as people type it.
func (i *interruptError) Error() string {
	if number, ok := i.signal.(unix.Signal); ok {
		return "stopped by " + unix.SignalName(number)
	}
	return "stopped by " + i.signal.String()
}

// FaultCode makes an interruption a fault of the kind Canceled.
func (i *interruptError) FaultCode() string { return fault.Canceled.Code() }

// onSignals calls handle for each of the signals until stop is called. The
// handler must be quick: a signal that arrives while another one waits is
// lost, as signals are.
func onSignals(handle func(os.Signal), signals ...os.Signal) (stop func(), err error) {
	const stage = "signals"
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: stage}}, DrainTimeout: time.Second})
	if err != nil {
		return nil, err
	}
	group, err := supervisor.NewGroup(supervise.GroupSpec{Service: "node", Kind: stage, Stage: stage, Max: 1})
	if err != nil {
		return nil, err
	}
	in := make(chan os.Signal, 1)
	signal.Notify(in, signals...)
	err = group.Go(func(ctx context.Context) error {
		for {
			select {
			case one := <-in:
				handle(one)
			case <-ctx.Done():
				return nil
			}
		}
	})
	return func() {
		signal.Stop(in)
		group.Close()
		_ = group.Wait(context.Background()) // it ends with the group
	}, err
}
