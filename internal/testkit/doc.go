// Package testkit is what the tests of many packages need: assertions that say
// what was expected, comparing the JSON of types, waiting with a deadline, golden
// files, files and certificates, and the test binary as a second process. Only
// tests import it. It knows nothing of the product but fault, so that any package
// may use it.
package testkit
