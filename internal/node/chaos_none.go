//go:build !chaos

package node

// addChaos adds nothing: the product has no chaos service.
func (n *Node) addChaos() error { return nil }
