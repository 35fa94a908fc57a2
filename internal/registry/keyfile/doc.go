// Package keyfile stores the private keys of the signers of a registry.
//
// A signer's key is worth protecting: M of them can change anything. So the
// file that holds it is encrypted with a passphrase unless its owner chooses
// otherwise, only its owner can read it, and it never replaces an existing
// file.
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
// line, so the key can be recovered without this program. What age prints can
// be used as a key file again; it is the form that --no-passphrase writes.
//
// # Bytes first
//
// [Generate], [Seal], [FormatPlain] and [Open] work on bytes, because a key may
// come from standard input, an environment variable or a password manager.
// [Write] is the thin layer for files.
//
// Open asks for the passphrase only when the bytes are an encrypted key file,
// so that a passphrase is never asked for in vain. A wrong one is Unauthorized,
// bytes that are no key file are Malformed, and an error of the passphrase
// function is returned with its kind.
//
// # What it does not do
//
// It does not prompt, knows no terminal, signs nothing, and does not check
// whether a key is in a signer set.
package keyfile
