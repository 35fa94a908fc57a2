//go:build !unix

package session

import "errors"

// readable says that a socket can be read from without waiting.
const readable = false

func readFrom(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

func again(error) bool { return false }
