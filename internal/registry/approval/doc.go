// Package approval is the signers' side of a registry: it reads a change that
// is to be proposed, examines what a signer is asked to sign, signs it, and
// finds the signer of a signature.
//
// A signer does not trust the node. A Request holds the message to sign and the
// change that it is about; Verify accepts it only if the hashes in the message
// are those of the change. What Verify returns can be shown: it is computed
// from the operations, and the node's own description of them is not used.
//
// A request can also be signed without a node. It is a document that can be
// carried to a machine without a network, and carried back with its signature.
package approval
