package gossip

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
)

// fingerprint tells letters apart, for nobody but this node. It is never zero.
//
// The id of a letter is for the world: anybody can compute it, and nobody can
// find two letters that share one. To know whether a letter came before, a node
// needs less. A keyed universal hash does it in a fraction of the time, as long
// as nobody knows its key or sees what it gives. Both are so: the key is drawn at
// random for each engine, and no fingerprint leaves it.
//
// The hash is that of GCM, with the letter as additional data and nothing to
// encrypt. For any two different letters of n blocks of 16 bytes the chance to
// collide is at most (n+2)/2^128, over the choice of the key. A letter has
// 65,536 blocks at most, so that is less than 2^-110, whoever chose the letters;
// with a million of them remembered, a new one is mistaken for an old one with a
// chance below 2^-90. That is exact for all purposes. That the nonce is always
// the same is no harm here: it only adds the same secret number to every hash.
type fingerprint struct{ a, b uint64 }

const fingerprintSize = 16

// fingerprinter takes fingerprints. It may be used by many at once.
type fingerprinter struct {
	mac cipher.AEAD
}

var noNonce [12]byte

func newFingerprinter() *fingerprinter {
	var key [16]byte
	_, _ = rand.Read(key[:]) // it never fails; the program ends if there is no chance to be had
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic("gossip: " + err.Error())
	}
	mac, err := cipher.NewGCM(block)
	if err != nil {
		panic("gossip: " + err.Error())
	}
	return &fingerprinter{mac}
}

// of is the fingerprint of some bytes. The room is for its own use; it would
// have to be found anew for each letter otherwise.
func (p *fingerprinter) of(msg []byte, room *[fingerprintSize]byte) fingerprint {
	p.mac.Seal(room[:0], noNonce[:], nil, msg)
	f := fingerprint{binary.LittleEndian.Uint64(room[:8]), binary.LittleEndian.Uint64(room[8:])}
	if f == (fingerprint{}) {
		f.a = 1 // zero means nothing in tables; this costs a chance in 2^128
	}
	return f
}
