// The forms in which things are hashed and signed: canonical JSON, base64, BLAKE3.
import {addressOf} from './hash'

/** JSON in the one form in which it is hashed (RFC 8785; the registry has no fractions). */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`
  if (value !== null && typeof value === 'object') {
    return `{${Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1).map(([key, one]) => `${JSON.stringify(key)}:${canonical(one)}`).join(',')}}`
  }
  return JSON.stringify(value)
}

/** Reads a text that must be canonical: written again, it is the same. A field twice, or a number that this browser cannot hold, is refused. */
export function readCanonical<T>(text: string): T {
  const value = JSON.parse(text) as T
  if (canonical(value) !== text) throw new Error('It is not in its canonical form.')
  return value
}

export const fromBase64 = (text: string) => Uint8Array.from(atob(text), c => c.charCodeAt(0))
export const toBase64 = (bytes: Uint8Array) => btoa(String.fromCharCode(...bytes))
export const textOf = (base64: string) => new TextDecoder('utf-8', {fatal: true, ignoreBOM: true}).decode(fromBase64(base64))
export const bytesOf = (text: string) => new TextEncoder().encode(text)

/** The address of a text, or of what a base64 says. */
export const hash = (of: Uint8Array | string) => addressOf(new Blob([of as BlobPart]).stream(), () => {})
export const hashOf = (base64: string) => hash(fromBase64(base64))
