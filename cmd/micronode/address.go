package main

import (
	"errors"
	"strings"

	"micronode/b3"
	"micronode/fault"
)

// parseAddress reads the address of an object as a person types it.
func parseAddress(text string) (b3.Address, error) {
	const op = "address"
	if strings.HasPrefix(text, "name:") {
		err := fault.New(op, fault.Malformed, "%q is a name, and this takes an address", text)
		err.Next = "Give what the name means, as `micronode name get` prints it: b3: and 64 hex digits."
		return b3.Address{}, err
	}
	address, err := b3.Parse(text)
	if bad, ok := errors.AsType[*b3.Malformed](err); ok {
		err := fault.New(op, fault.Malformed, "%q is not an address: %s", bad.Input, bad.Reason)
		err.Next = "Give the address as `micronode put` printed it: b3: and 64 lower-case hex digits."
		return b3.Address{}, err
	}
	return address, err
}
