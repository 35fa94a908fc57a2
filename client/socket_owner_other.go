//go:build !linux && !darwin && !windows

package client

import (
	"errors"
	"math"
	"net"
	"os"
)

const maxSocketName = 103 // the kernel's limit

// ownUID is the user whose node is asked.
func ownUID() uint32 { return uint32(os.Geteuid()) }

// ownerOf always fails: how this system is asked is not known. Use MICRO_URL.
func ownerOf(*net.UnixConn) (uint32, error) {
	return math.MaxUint32, errors.New("the owner of a local socket is not known on this system; set MICRO_URL")
}
