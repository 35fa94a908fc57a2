// Package gates runs the reliability gates: what must hold for the real binary
// under load and under attack, measured from another process. It has only
// tests, behind the build tag "gates", because they take their time and the
// whole machine; `make gates` runs them, and GATES=long makes them thorough.
// Where a hypervisor gives the processors to others, some times cannot be
// measured; the table at the end lists them.
package gates
