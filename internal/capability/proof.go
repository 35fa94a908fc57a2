package capability

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"micronode/fault"
)

// ProofNonceSize is how long the nonces are from which a proof is made.
const ProofNonceSize = 32

// Proof proves to another holder of the root that this process has it, and is
// of no use to any other: it is bound to two nonces, one of each side, and to
// the connection on which both were exchanged.
func (r *Root) Proof(connection string, challenge, response []byte) ([]byte, error) {
	const op = "capability.proof"
	if len(challenge) != ProofNonceSize || len(response) != ProofNonceSize {
		return nil, fault.New(op, fault.Malformed, "a nonce has %d bytes", ProofNonceSize)
	}
	var proof []byte
	err := r.use(op, func(root []byte) error {
		key, err := hkdf.Key(sha256.New, root, nil, "micronode part proof v1", keySize)
		if err != nil {
			return err
		}
		defer clear(key)
		mac := hmac.New(sha256.New, key)
		for _, part := range [][]byte{challenge, response, []byte(connection)} {
			mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
			mac.Write(part)
		}
		proof = mac.Sum(nil)
		return nil
	})
	return proof, err
}
