//go:build !race

package oap

const dropped = 0
