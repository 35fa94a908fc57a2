// Package interop tests micronode against software that its authors did not
// write. What two independent programs agree on is likely true; what only our
// own tests say may be our own misreading.
//
// The other programs are dependencies of this module only, never of the
// product.
package interop
