// The capability of this page. It is in memory only: a reload forgets it.
import {store} from './store'

export interface Session { token: string; expires?: string; scopes?: string[] }

export const session = store<Session | undefined>(undefined)

/** May the page ask for what needs this scope? The node decides; this only decides what is shown. */
export function may(scope: string): boolean {
  const now = session.get()
  return now !== undefined && (now.scopes === undefined || now.scopes.includes('admin') || now.scopes.includes(scope))
}

/** The code of a one-time link, taken out of the address and of the history. */
export function takeLink(): string | undefined {
  const found = /^#link=([A-Za-z0-9]+)$/.exec(location.hash)
  if (!found) return undefined
  history.replaceState(null, '', location.pathname + location.search)
  return found[1]
}
