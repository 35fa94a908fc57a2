// What this browser can check of a registry by itself: hashes, the chain, and
// signatures. It trusts nothing that the node says about them.
import {addressOf} from './hash'
import type {Proposal, RegistryVersion} from './types'

const prefix = 'micronode registry approval v1\n'
const encoder = new TextEncoder()

/** JSON in the one form in which it is hashed (RFC 8785; the registry has no fractions). */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`
  if (value !== null && typeof value === 'object') {
    return `{${Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1).map(([key, one]) => `${JSON.stringify(key)}:${canonical(one)}`).join(',')}}`
  }
  return JSON.stringify(value)
}

export const fromBase64 = (text: string) => Uint8Array.from(atob(text), c => c.charCodeAt(0))
export const toBase64 = (bytes: Uint8Array) => btoa(String.fromCharCode(...bytes))
const hash = (bytes: Uint8Array | string) => addressOf(new Blob([typeof bytes === 'string' ? encoder.encode(bytes) : bytes as BlobPart]).stream(), () => {})

export interface Check { text: string; ok: boolean }

/** Browsers keep their cryptography from pages that came over plain HTTP from another machine. */
export const canSign = () => typeof crypto !== 'undefined' && crypto.subtle !== undefined

async function verifies(key: string, signature: string, message: string): Promise<boolean> {
  const raw = fromBase64(key.replace(/^ed25519:/, ''))
  const publicKey = await crypto.subtle.importKey('raw', raw, 'Ed25519', false, ['verify'])
  return crypto.subtle.verify('Ed25519', publicKey, fromBase64(signature), encoder.encode(message))
}

/** Checks a version: its header is what its hash says, it follows the one before, its payload is the signed one, enough signers signed. */
export async function checkVersion(of: RegistryVersion, before?: RegistryVersion): Promise<Check[]> {
  const checks: Check[] = []
  const headerBytes = fromBase64(of.header)
  const header = JSON.parse(new TextDecoder().decode(headerBytes)) as Record<string, unknown> & {approvals: {sig: string; signer_id: string; public?: string}[]}
  checks.push({text: 'The hash of the header is the hash of the version', ok: await hash(headerBytes) === of.hash})
  checks.push({text: 'The operations are those of the header', ok: await hash(fromBase64(of.payload)) === header['payload_b3'] && header['payload_b3'] === of.payload_b3})
  if (before) checks.push({text: `It follows version ${before.version}`, ok: header['prev_hash'] === before.hash && await hash(fromBase64(before.header)) === before.hash && header['version'] === before.version + 1})
  if (of.version === 0 || !canSign()) return checks
  const {base, expires_at, payload_b3, preconditions_b3, proposal_id, registry, signers_version, supersedes} = header
  const message = prefix + canonical({base, expires_at, payload_b3, preconditions_b3, proposal_id, registry, signers_version, supersedes})
  const keys = new Set<string>()
  const set = before?.signer_set ?? of.signer_set
  for (const one of of.approvals ?? []) {
    const known = set.keys?.some(key => key.public === one.public)
    if (known && await verifies(one.public, one.sig, message)) keys.add(one.public)
  }
  checks.push({text: `${keys.size} of ${set.keys?.length ?? 0} signers signed it, and ${set.m} are needed`, ok: keys.size >= set.m})
  return checks
}

/** Checks that what is shown of a proposal is what would be signed; throws with the reason if not. */
export async function checkProposal(of: Proposal, registry: string | undefined): Promise<void> {
  const text = new TextDecoder().decode(fromBase64(of.sign_this))
  if (!text.startsWith(prefix)) throw new Error('The message is not the approval of a registry. Do not sign it.')
  const message = JSON.parse(text.slice(prefix.length)) as {proposal_id: string; payload_b3: string; preconditions_b3: string; registry: string}
  if (prefix + canonical(message) !== text) throw new Error('The message is not in its canonical form. Do not sign it.')
  if (message.proposal_id !== of.proposal_id) throw new Error('The message is about another proposal. Do not sign it.')
  if (registry && message.registry !== registry) throw new Error('The message is for another registry. Do not sign it.')
  if (await hash(canonical({ops: of.ops, schema_version: '1.0.0'})) !== message.payload_b3) throw new Error('The operations shown are not those of the message. Do not sign it.')
  const before = new Map((of.diff ?? []).map(one => [one.id, one.before]))
  const ids = (of.ops as {id?: string; item?: {id: string}}[]).map(one => one.item?.id ?? one.id!).sort((a, b) => a < b ? -1 : 1)
  const preconditions = await Promise.all(ids.map(async id => ({hash: before.get(id) == null ? null : await hash(canonical(before.get(id))), id})))
  if (await hash(canonical(preconditions)) !== message.preconditions_b3) throw new Error('The values before are not those of the message. Do not sign it.')
}

const pkcs8 = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20] // the header of a seed

/** Signs with a plain key file, which stays in this browser. */
export async function sign(keyFile: string, signThis: string): Promise<string> {
  const found = /^ed25519-seed:([A-Za-z0-9+/]{43}=)\s*$/.exec(keyFile.trim())
  if (!found) {
    throw new Error(keyFile.includes('BEGIN AGE ENCRYPTED FILE') ? 'The key file is encrypted. Decrypt it with `age -d FILE`, or approve in a terminal: micronode registry approve.' : 'This is not a key file of `micronode registry keygen`.')
  }
  if (!canSign()) throw new Error('This browser signs only on pages over HTTPS or from this machine.')
  const key = await crypto.subtle.importKey('pkcs8', new Uint8Array([...pkcs8, ...fromBase64(found[1]!)]), 'Ed25519', false, ['sign'])
  return toBase64(new Uint8Array(await crypto.subtle.sign('Ed25519', key, fromBase64(signThis))))
}
