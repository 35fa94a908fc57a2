//go:build gates

package testkit

// measuresMemory is whether this is built for the gates.
const measuresMemory = true
