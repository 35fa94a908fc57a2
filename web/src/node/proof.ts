// One version of a registry, proved in this browser by its bundle: from the first version, which the name of the registry is the hash of, over every change of
// the signers to the version itself, each in the tree of a signed checkpoint. It trusts nothing that the node says about them.
import {approvalPrefix, hasCrypto} from './approval'
import {canonical, fromBase64, hashOf, readCanonical, textOf} from './canonical'
import {changesOf, type Change, type Item, type Op} from './change'
import {isIncluded, openCheckpoint, verifies, type Checkpoint} from './tree'
import type {Bundle, BundleRecord, RegistryVersion} from './types'

export interface Approval { signer_id: string; public: string; sig: string; signed_at: string }
export interface Header {
  version: number; registry: string; prev_hash: string; payload_b3: string; preconditions_b3: string; signers_version: number; committed_at: string; expires_at: string
  proposal_id: string; base: unknown; supersedes: {version: number; reason: string} | null; approvals: Approval[]
}
export interface SignerSet { m: number; keys: {signer_id: string; public: string}[] }
export interface Check { text: string; ok: boolean }

/** The header and the operations of a version, from the bytes that are hashed. */
export function openRecord(of: {header: string; payload: string}): {header: Header; ops: Op[]} {
  return {header: readCanonical<Header>(textOf(of.header)), ops: readCanonical<{ops: Op[]}>(textOf(of.payload)).ops}
}

/** What a version changed. Of the items before it, it has only hashes. */
function changesOfVersion(of: BundleRecord): Change[] {
  const before = readCanonical<{id: string; hash: string | null}[]>(textOf(of.preconditions)), {ops} = openRecord(of)
  const kind = (id: string) => ops.find(one => one.item?.id === id)?.item?.kind ?? id
  return changesOf(ops, new Map(before.map(({id, hash}) => [id, hash === null ? undefined : {id, kind: kind(id)}])))
}

/** What is shown of a version; undefined if its bytes cannot be read. */
export function readVersion(of: RegistryVersion | undefined) {
  try {
    return of && {...openRecord(of), changes: changesOfVersion(of)}
  } catch {
    return undefined
  }
}

/** The signer set that operations put in force; undefined if they change none. */
export const signersIn = (ops: Op[]) => ops.find(one => one.item?.id === 'signers')?.item as (Item & SignerSet) | undefined

/** Checks what is shown of a version, one step after the other; the last one may have failed. */
export async function checkVersion(shown: RegistryVersion, before: RegistryVersion | undefined, bundle: Bundle): Promise<Check[]> {
  const checks: Check[] = []
  const check = (ok: unknown, text: string) => { checks.push({text, ok: !!ok}); return !!ok }
  const number = shown.version, {record, registry} = bundle, {header} = openRecord(record)
  if (!check(bundle.version === number && header.version === number && record.header === shown.header && record.payload === shown.payload && record.preconditions === shown.preconditions && await hashOf(record.header) === shown.hash, 'What is shown above is what the hash of the version stands for') ||
    !check(await isWhole(record, header), 'Its operations are those of its header') ||
    before && !check(before.version === number - 1 && await hashOf(before.header) === header.prev_hash, `It follows version ${before.version}`) || !hasCrypto()) return checks

  const checkpoint = await openCheckpoint(bundle.checkpoint, bundle.key, 'micronode/registry/' + registry.slice(3, 19))
  if (!check(checkpoint, `The key of the log has signed a checkpoint${checkpoint ? `, with ${checkpoint.size === 1 ? 'one version' : `${checkpoint.size} versions`}` : ''}`)) return checks
  const inLog = (of: BundleRecord, at: number, proof: string[]) => isIncluded(fromBase64(of.header), at, proof, checkpoint as Checkpoint)
  if (!check(await inLog(record, number, bundle.inclusion), 'It is in that log, in its place')) return checks

  const [first, ...changes] = bundle.signers
  if (!check(first?.version === 0 && await hashOf(first.record.header) === registry && await isWhole(first.record, openRecord(first.record).header) && await inLog(first.record, 0, first.inclusion), 'That log begins with the version that the registry is named by')) return checks
  let set = signersIn(openRecord(first!.record).ops), since = 0
  for (const one of changes) {
    const next = openRecord(one.record)
    const right = one.version > since && one.version < number && next.header.version === one.version && next.header.registry === registry && next.header.signers_version === since && await isWhole(one.record, next.header) && await inLog(one.record, one.version, one.inclusion)
    if (!check(right && (await signedBy(next.header, set)) >= set!.m, `Version ${one.version} changed the signers, and enough of those before it signed that`)) return checks
    set = signersIn(next.ops)
    since = one.version
  }
  if (number === 0) return checks
  const signed = header.registry === registry && header.signers_version === since && header.committed_at <= header.expires_at ? await signedBy(header, set) : 0
  check(set && signed >= set.m, `${signed} of the ${set?.keys.length} signers since version ${since} signed it, and ${set?.m} are needed`)
  return checks
}

/** What no check of this page is about. */
export function unproved(): string[] {
  return [...hasCrypto() ? [] : ['signatures and the log: this browser checks them only on pages over HTTPS or from this machine.'],
    'that these are the registry you mean, and the key of its log. Compare them with what you know from elsewhere.',
    'the items below, and that no change of the signers is left out: that takes all versions. And this page itself comes from the node. In a terminal, micronode registry verify checks all of it.']
}

async function isWhole(of: BundleRecord, header: Header): Promise<boolean> {
  return await hashOf(of.payload) === header.payload_b3 && await hashOf(of.preconditions) === header.preconditions_b3
}

/** How many of a signer set have signed what a header says; 0 if anybody else did, or if a signature is wrong. */
async function signedBy(header: Header, set: SignerSet | undefined): Promise<number> {
  const {base, expires_at, payload_b3, preconditions_b3, proposal_id, registry, signers_version, supersedes} = header
  const message = approvalPrefix + canonical({base, expires_at, payload_b3, preconditions_b3, proposal_id, registry, signers_version, supersedes})
  const keys = new Set<string>()
  for (const one of header.approvals) {
    const known = set?.keys.some(key => key.public === one.public && key.signer_id === one.signer_id)
    if (!known || !await verifies(fromBase64(one.public.replace(/^ed25519:/, '')), fromBase64(one.sig), message)) return 0
    keys.add(one.public)
  }
  return keys.size
}
