// The tree over the versions of a registry (RFC 6962), and the note that is signed over it (C2SP signed-note and tlog-checkpoint).
import {bytesOf, fromBase64, toBase64} from './canonical'

export interface Checkpoint { size: number; root: string }

async function sha256(...parts: (Uint8Array | number[])[]): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', new Uint8Array(parts.flatMap(one => [...one]))))
}

export async function verifies(publicKey: Uint8Array, signature: Uint8Array, message: string): Promise<boolean> {
  const key = await crypto.subtle.importKey('raw', publicKey as BufferSource, 'Ed25519', false, ['verify'])
  return crypto.subtle.verify('Ed25519', key, signature as BufferSource, bytesOf(message))
}

/** Reads a checkpoint that the key of this log has signed; undefined if it has not, or if either is of another log. */
export async function openCheckpoint(note: string, verifierKey: string, origin: string): Promise<Checkpoint | undefined> {
  const key = /^(\S+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)$/.exec(verifierKey), signed = /^(([^\n]+)\n(\d+)\n([A-Za-z0-9+/=]+)\n[^]*)\n— (\S+) ([A-Za-z0-9+/=]+)\n$/.exec(note)
  if (!key || !signed || key[1] !== origin || signed[2] !== origin || signed[5] !== origin) return undefined
  const raw = fromBase64(key[3]!), signature = fromBase64(signed[6]!)
  const id = toBase64((await sha256(bytesOf(origin + '\n'), raw)).slice(0, 4))
  if (raw[0] !== 1 || id !== toBase64(signature.slice(0, 4)) || id !== toBase64(Uint8Array.from(key[2]!.match(/../g)!, two => parseInt(two, 16)))) return undefined
  return await verifies(raw.slice(1), signature.slice(4), signed[1]!) ? {size: Number(signed[3]), root: signed[4]!} : undefined
}

/** Reports whether the leaf is at its index in the tree of the checkpoint. */
export async function isIncluded(leaf: Uint8Array, index: number, proof: string[], {size, root}: Checkpoint): Promise<boolean> {
  if (index >= size) return false
  let hash = await sha256([0], leaf), at = index, last = size - 1
  const up = () => { at = Math.floor(at / 2); last = Math.floor(last / 2) }
  for (const one of proof) {
    if (last === 0) return false
    if (at % 2 || at === last) {
      hash = await sha256([1], fromBase64(one), hash)
      while (at % 2 === 0 && at !== 0) up()
    } else hash = await sha256([1], hash, fromBase64(one))
    up()
  }
  return last === 0 && toBase64(hash) === root
}
