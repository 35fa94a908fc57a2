//go:build !unix

package session

import "errors"

// hasRawIO reports whether a socket can be read and written without waiting.
const hasRawIO = false

func readFrom(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

func writeTo(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

func wouldBlock(error) bool { return false }
