//go:build !unix

package session

import "errors"

// readable says that a socket can be read from and written to without waiting.
const readable = false

func readFrom(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

func writeTo(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

func again(error) bool { return false }
