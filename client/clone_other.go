//go:build !linux

package client

import (
	"errors"
	"os"
)

const canClone = false

func cloneFile(_, _ *os.File) error { return errors.ErrUnsupported }
