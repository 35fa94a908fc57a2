//go:build !race

package oap

const poolAllocs = 0
