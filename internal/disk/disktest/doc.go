// Package disktest gives tests a real disk that is really full: a small one in
// memory, which nobody else sees.
//
// To mount one takes a right that only root has; but everybody may be root in a
// world of their own, where the system allows that. So a test runs itself once
// more, in one.
package disktest
