//go:build !linux

package client

import (
	"errors"
	"math"
	"net"
)

// ownerOf always fails: only Linux has the local socket. Other systems use
// MICRO_URL.
func ownerOf(*net.UnixConn) (uint32, error) {
	return math.MaxUint32, errors.New("the local socket is for Linux; set MICRO_URL")
}
