// Package keyfile keeps the keys of the people who sign changes to a registry.
//
// A signer's key is worth protecting: M of them can change anything. So the file
// that holds it is encrypted with a passphrase unless its owner says otherwise,
// it can be read by its owner only, and it never replaces a file that is there.
//
// # The two files
//
// `micronode registry keygen --out alice.key` writes two:
//
//	alice.key      the private key
//	alice.key.pub  the public key, one line: ed25519:<base64 of 32 bytes>
//
// The private key is one line too, ed25519-seed:<base64 of 32 bytes>, and that
// line is what is encrypted. The encrypted form is age's, armored, with its
// scrypt recipient: `age -d alice.key` asks for the passphrase and prints the
// line. Whoever loses this program has not lost the key. What age prints can be
// used as a key file again; it is the form that --no-passphrase writes.
//
// # Bytes first
//
// [Generate], [Seal], [Plain] and [Open] work on bytes, because a key may come
// from standard input, an environment variable or a password manager. [Write],
// [Read] and [ReadPublic] are the thin layer for files.
//
// Open asks for the passphrase only when the bytes are such a file, so that
// nobody types a passphrase into the void. A wrong one is Unauthorized, bytes
// that are no key file are Malformed, and what the asking function returned as
// an error comes back with its kind.
//
// # What it does not do
//
// It does not ask anybody anything, knows no terminal, signs nothing, and does
// not say whether a key is in a signer set.
package keyfile
