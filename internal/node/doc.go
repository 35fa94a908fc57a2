// Package node puts the parts together: config to services to run to drain. It
// is the only package that knows every service, and it does nothing else; what
// a service does is in the service's own package.
//
// Read node.go from top to bottom: what a node consists of, in which stages it
// starts, and hence in which order it stops.
package node
