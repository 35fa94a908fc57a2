//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// awaitInput waits until one of two files can be read.
func awaitInput(file, wake *os.File) error {
	ready := []unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLIN}, {Fd: int32(wake.Fd()), Events: unix.POLLIN}}
	_, err := unix.Poll(ready, -1)
	return err
}

// disableEcho turns off the echo of a terminal, except for the line break.
// restore brings the settings back.
func disableEcho(terminal uintptr) (restore func(), err error) {
	saved, err := unix.IoctlGetTermios(int(terminal), getTerminal)
	if err != nil {
		return nil, err
	}
	quiet := *saved
	quiet.Lflag = quiet.Lflag&^unix.ECHO | unix.ECHONL
	if err := unix.IoctlSetTermios(int(terminal), setTerminal, &quiet); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(int(terminal), setTerminal, saved) }, nil // if the terminal is gone, there is nothing to restore
}

// signalName names a signal as people type it.
func signalName(signal os.Signal) string {
	if number, ok := signal.(unix.Signal); ok {
		return unix.SignalName(number)
	}
	return signal.String()
}
