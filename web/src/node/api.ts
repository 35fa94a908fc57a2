// Requests to the node. What is refused is thrown as a Problem, with the next step.
import {session} from './session'

export interface ProblemDocument {
  title: string; status: number; code: string; detail: string; next: string; corr_id: string; retryable: boolean
}

export class Problem extends Error {
  constructor(readonly document: ProblemDocument) { super(document.detail || document.title) }
  get status() { return this.document.status }
  /** The node wants a capability, or another one. */
  get wantsCapability() { return this.status === 401 || this.status === 403 }
}

/** What went wrong, in the shape of the node's own problems. */
export function problemOf(error: unknown): ProblemDocument {
  if (error instanceof Problem) return error.document
  return {title: 'No answer', status: 0, code: 'unreachable', detail: 'The node cannot be reached.',
    next: 'Check that it runs: micronode status', corr_id: '', retryable: true}
}

export function headers(more: Record<string, string> = {}): Record<string, string> {
  const token = session.get()?.token
  return token ? {Authorization: `Bearer ${token}`, ...more} : more
}

export async function problemFrom(answer: Response): Promise<Problem> {
  const fallback = {title: answer.statusText || `Status ${answer.status}`, status: answer.status, code: '', detail: '', next: '',
    corr_id: answer.headers.get('X-Corr-ID') ?? '', retryable: false}
  try {
    return new Problem({...fallback, ...await answer.json() as ProblemDocument})
  } catch {
    return new Problem(fallback)
  }
}

export async function send(method: string, path: string, body?: BodyInit, more: Record<string, string> = {}, signal?: AbortSignal): Promise<Response> {
  const answer = await fetch(path, {method, body, signal, headers: headers(more), credentials: 'omit', cache: method === 'GET' ? 'no-cache' : 'no-store', redirect: 'error'})
  if (!answer.ok) throw await problemFrom(answer)
  return answer
}

export async function read<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send('GET', path, undefined, {Accept: 'application/json'}, signal)).json() as Promise<T>
}

/** Each call has a key of its own, so that the node does it once even if a proxy sends it twice. */
export async function write<T>(method: string, path: string, body?: unknown): Promise<T> {
  const key = Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, '0')).join('')
  const answer = await send(method, path, body === undefined ? undefined : JSON.stringify(body), {'Idempotency-Key': key, ...(body === undefined ? {} : {'Content-Type': 'application/json'})})
  const text = await answer.text()
  return (text ? JSON.parse(text) : undefined) as T
}
