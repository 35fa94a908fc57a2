// The capability of this page. It is in memory only: a reload forgets it.
import {store} from './store'

export interface Session { token: string }

export const session = store<Session | undefined>(undefined)

/** Does the capability of the page state this scope? The node decides; this only decides what is shown. */
export function may(scope: string): boolean {
  const now = session.get()
  return now !== undefined && scopesOf(now.token).every(list => list.some(one => one === 'admin' || one === scope || one.startsWith(scope + ':')))
}

let read: {token: string; scopes: string[][]} | undefined

/** The lists of scopes in a token, all of which must allow something: it is a macaroon (version 2), whose caveats are texts. */
function scopesOf(token: string): string[][] {
  if (read?.token === token) return read.scopes
  const scopes: string[][] = []
  try {
    const bytes = Uint8Array.from(atob(token.slice(4).replaceAll('-', '+').replaceAll('_', '/')), c => c.charCodeAt(0))
    for (let at = 1; at < bytes.length;) {
      if (bytes[at++] === 0) continue // the end of a section
      let size = 0, shift = 0
      do size |= (bytes[at]! & 127) << shift, shift += 7
      while (bytes[at++]! > 127)
      const [word, ...list] = new TextDecoder().decode(bytes.subarray(at, at += size)).split(' ')
      if (word === 'scope') scopes.push(list)
    }
  } catch { /* it is no token, and the node says so */ }
  if (!scopes.length) scopes.push([])
  read = {token, scopes}
  return scopes
}

/** The code of a one-time link, taken out of the address and of the history. */
export function takeLink(): string | undefined {
  const found = /^#link=([A-Za-z0-9]+)$/.exec(location.hash)
  if (!found) return undefined
  history.replaceState(null, '', location.pathname + location.search)
  return found[1]
}
