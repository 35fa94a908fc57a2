// What operations do to the items of a registry, in lines that a signer reads. Nothing is shortened, and nothing comes from what the node says about them.
import {canonical} from './canonical'

export interface Item { id: string; kind: string; [field: string]: unknown }
export interface Op { op: string; id?: string; item?: Item }
export interface Change { id: string; before?: Item; after?: Item }

/** The changes, by the operations and by the items before them. */
export function changesOf(ops: Op[], before: Map<string, Item | undefined>): Change[] {
  return ops.map(one => {
    const id = one.item?.id ?? one.id!
    return {id, before: before.get(id), after: one.item}
  }).sort((a, b) => a.id < b.id ? -1 : 1)
}

/** The changes as text: + is added, ~ is changed, - is removed. */
export const describe = (changes: Change[]) => changes.map(lines).join('\n')

function lines({id, before, after}: Change): string {
  const is = after ?? before, was = after && before
  const rows = [`${!after ? '-' : before ? '~' : '+'} ${is && is.kind !== id ? shown(is.kind) + ' ' : ''}${shown(id)}`]
  for (const name of Object.keys({...was, ...is}).sort()) {
    const [a, b] = [was?.[name], is?.[name]]
    if (name === 'id' || (name === 'kind' && !was) || canonical(a) === canonical(b)) continue
    if (name === 'keys') rows.push(...signers(keysOf(a), keysOf(b)))
    else rows.push(`${name} ${a === undefined ? '' : shown(a) + ' → '}${b === undefined ? 'nothing' : shown(b)}`)
  }
  return rows.join('\n    ')
}

const keysOf = (list: unknown) => new Map(((list ?? []) as {signer_id: string; public: string}[]).map(one => [one.signer_id, one.public]))

function signers(was: Map<string, string>, is: Map<string, string>): string[] {
  return [...new Set([...was.keys(), ...is.keys()])].filter(id => was.get(id) !== is.get(id)).map(id => {
    const a = was.get(id), b = is.get(id)
    return `${!was.size ? '' : !b ? '- ' : a ? '~ ' : '+ '}${shown(id)} ${[a, b].filter(Boolean).map(shown).join(' → ')}`
  })
}

/** A word as it is; everything else as JSON, in which nothing is invisible and nothing turns the line around. */
function shown(value: unknown): string {
  return typeof value === 'string' && /^[!#-~]+$/.test(value) ? value : String(canonical(value)).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, c => `\\u{${c.codePointAt(0)!.toString(16)}}`)
}
