package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// awaitInput leaves the waiting to the read, which a Ctrl-C ends on a console.
func awaitInput(*os.File, *os.File) error { return nil }

// disableEcho turns off the echo of a console. restore brings the settings
// back.
func disableEcho(terminal uintptr) (restore func(), err error) {
	var saved uint32
	if err := windows.GetConsoleMode(windows.Handle(terminal), &saved); err != nil {
		return nil, err
	}
	if err := windows.SetConsoleMode(windows.Handle(terminal), saved&^windows.ENABLE_ECHO_INPUT); err != nil {
		return nil, err
	}
	return func() { _ = windows.SetConsoleMode(windows.Handle(terminal), saved) }, nil // if the console is gone, there is nothing to restore
}

// signalName names a signal as people type it.
func signalName(signal os.Signal) string { return signal.String() }
