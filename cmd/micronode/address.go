package main

import (
	"errors"
	"strings"

	"micronode/b3"
	"micronode/fault"
)

// parseAddress reads the address of an object as the user types it.
func parseAddress(text string) (b3.Address, error) {
	const op = "address"
	if strings.HasPrefix(text, "name:") {
		return b3.Address{}, fault.New(op, fault.Malformed, "%q is a name; this command needs an address", text).
			Advise("Give the address of the name, as `micronode name get` prints it: b3: and 64 hex digits.")
	}
	address, err := b3.Parse(text)
	if bad, ok := errors.AsType[*b3.Malformed](err); ok {
		return b3.Address{}, fault.New(op, fault.Malformed, "%q is not an address: %s", bad.Input, bad.Reason).
			Advise("Give the address as `micronode put` printed it: b3: and 64 lower-case hex digits.")
	}
	return address, err
}
