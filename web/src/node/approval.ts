// What a signer approves: the message, and the change that it is about. What is shown is made from what is signed; a node that shows something else is found out.
import {canonical, fromBase64, hash, readCanonical, textOf, toBase64} from './canonical'
import {changesOf, type Change, type Item, type Op} from './change'
import type {Proposal} from './types'

export const approvalPrefix = 'micronode registry approval v1\n'

export interface Message {
  proposal_id: string; registry: string; payload_b3: string; preconditions_b3: string; expires_at: string
  supersedes: {version: number; reason: string} | null
}
export interface Approvable { message: Message; changes: Change[]; signThis: string }

/** The changes of a proposal as the node tells them; they are checked before anything is signed. */
export const changesIn = (of: Proposal) => changesOf((of.ops ?? []) as Op[], new Map((of.diff ?? []).map(one => [one.id, one.before as Item | undefined])))

/** Checks that the operations of a proposal are those that are signed, and the values before them too; throws with the reason if not. */
export async function checkProposal(of: Proposal, id: string): Promise<Approvable> {
  const refuse = (why: string) => new Error(`${why} Do not sign it.`)
  const text = textOf(of.sign_this)
  if (!text.startsWith(approvalPrefix)) throw refuse('The message is not the approval of a registry.')
  const message = readCanonical<Message>(text.slice(approvalPrefix.length))
  if (message.proposal_id !== id) throw refuse('The message is about another proposal.')
  if (!of.ops?.length || await hash(canonical({ops: of.ops, schema_version: '1.0.0'})) !== message.payload_b3) throw refuse('The operations of the node are not those of the message.')
  const changes = changesIn(of)
  const preconditions = await Promise.all(changes.map(async one => ({hash: one.before ? await hash(canonical(one.before)) : null, id: one.id})))
  if (await hash(canonical(preconditions)) !== message.preconditions_b3) throw refuse('The values before are not those of the message.')
  return {message, changes, signThis: of.sign_this}
}

/** Browsers keep their cryptography from pages that came over plain HTTP from another machine. */
export const hasCrypto = () => typeof crypto !== 'undefined' && crypto.subtle !== undefined

export const isEncrypted = (keyFile: string) => keyFile.includes('BEGIN AGE ENCRYPTED FILE')

const pkcs8 = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20] // the header of a seed

/** Signs with a plain key file, which stays in this browser. */
export async function sign(keyFile: string, signThis: string): Promise<string> {
  const found = /^ed25519-seed:([A-Za-z0-9+/]{43}=)\s*$/.exec(keyFile.trim())
  if (!found) throw new Error('This is not a key file of `micronode registry keygen`. The file that ends in .pub is the public half.')
  if (!hasCrypto()) throw new Error('This browser signs only on pages over HTTPS or from this machine.')
  const key = await crypto.subtle.importKey('pkcs8', new Uint8Array([...pkcs8, ...fromBase64(found[1]!)]), 'Ed25519', false, ['sign'])
  return toBase64(new Uint8Array(await crypto.subtle.sign('Ed25519', key, fromBase64(signThis))))
}
