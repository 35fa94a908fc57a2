// What the node does now. With a capability one stream feeds the page; without
// one, the page asks for readiness, which is public. While the page is hidden
// it does neither.
import {Problem, problemOf, read, write, type ProblemDocument} from './api'
import {readEvents} from './events'
import {session, takeLink, type Session} from './session'
import {store} from './store'
import type {NodeEvent, Readiness, Snapshot, Version} from './types'

/** A moment, for the lines of the last two minutes. */
export interface Moment { at: number; requests: number; refused: number; memory: number; p99: number }

export type Link = 'connecting' | 'live' | 'public' | 'lost'

export interface Live {
  link: Link
  readiness?: Readiness
  version?: Version
  snapshot?: Snapshot
  history: Moment[]
  refusing: Record<string, number> // per second, by queue (as in the snapshot) and by the name of a counter, between the last two snapshots
  events: NodeEvent[]
  refusal?: ProblemDocument // why the capability shows nothing
}

export const live = store<Live>({link: 'connecting', history: [], refusing: {}, events: []})

const keptMoments = 61 // two minutes
const keptEvents = 100
const pollEvery = 5000
const retryAfter = 2000

let stop: AbortController | undefined

function change(part: Partial<Live>) { live.set({...live.get(), ...part}) }

/** Follows the node for as long as somebody looks. */
export async function follow(): Promise<void> {
  const code = takeLink()
  if (code) {
    try {
      session.set(await write<Session>('POST', '/ui/session', {code}))
    } catch (error) {
      change({refusal: problemOf(error)})
    }
  }
  document.addEventListener('visibilitychange', restart)
  window.addEventListener('hashchange', async () => {
    const again = takeLink()
    if (again) session.set(await write<Session>('POST', '/ui/session', {code: again}).catch(error => { change({refusal: problemOf(error)}); return session.get() }))
  })
  session.subscribe(restart)
  restart()
}

function restart() {
  stop?.abort()
  if (document.hidden) return
  stop = new AbortController()
  void run(stop.signal)
}

async function run(signal: AbortSignal) {
  if (!live.get().version) void read<Version>('/version', signal).then(version => change({version}), () => {})
  while (!signal.aborted) {
    try {
      if (session.get()) await stream(signal)
      else await poll(signal)
    } catch (error) {
      if (signal.aborted) return
      if (error instanceof Problem && error.wantsCapability) {
        change({refusal: error.document, snapshot: undefined, history: []})
        await watchReadiness(signal)
        continue
      }
      change({link: 'lost'})
    }
    await pause(signal, retryAfter)
  }
}

async function stream(signal: AbortSignal) {
  await readEvents('/admin/ui/stream', signal, event => {
    if (event.name === 'snapshot') add(JSON.parse(event.data) as Snapshot)
    if (event.name === 'node') happened(JSON.parse(event.data) as NodeEvent)
  }, () => change({link: 'live', refusal: undefined}))
  if (!signal.aborted) change({link: 'lost'})
}

/** The node begins with its last events, which the page may have already. */
function happened(event: NodeEvent) {
  const {events} = live.get()
  if (!events.some(one => one.at === event.at && one.type === event.type && one.name === event.name)) change({events: [event, ...events].slice(0, keptEvents)})
}

/** Readiness is public, and so is what follows from it. */
async function poll(signal: AbortSignal) {
  const answer = await fetch('/readyz', {signal, cache: 'no-store', credentials: 'omit'})
  change({link: 'public', readiness: await answer.json() as Readiness, snapshot: undefined})
  await pause(signal, pollEvery - retryAfter)
}

/** A capability that cannot see the inside still has a readiness to show. */
async function watchReadiness(signal: AbortSignal) {
  while (!signal.aborted) {
    await poll(signal)
    await pause(signal, retryAfter)
  }
}

function pause(signal: AbortSignal, ms: number): Promise<void> {
  return new Promise(done => {
    if (signal.aborted) return done()
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', () => { clearTimeout(timer); done() }, {once: true})
  })
}

/** Adds a snapshot, and what follows from it and the one before. */
function add(next: Snapshot) {
  const before = live.get().snapshot
  let history = live.get().history, refusing: Record<string, number> = {}
  if (before && before.started === next.started) {
    const seconds = Math.max(0.1, (Date.parse(next.at) - Date.parse(before.at)) / 1000)
    history = [...history, {
      at: Date.parse(next.at), memory: next.status.memory.used, p99: quantile(before, next, 0.99),
      requests: Math.max(0, sum(next, 'http_requests_total/') - sum(before, 'http_requests_total/')) / seconds,
      refused: Math.max(0, refusals(next) - refusals(before)) / seconds,
    }].slice(-keptMoments)
    const was = {...before.counters, ...before.refused}
    for (const [name, n] of Object.entries({...next.counters, ...next.refused})) if (n > (was[name] ?? 0) && (name in next.refused || name.startsWith(rejected))) refusing[name] = (n - (was[name] ?? 0)) / seconds
  } else {
    history = []
  }
  change({link: 'live', snapshot: next, readiness: next.readiness, history, refusing})
}

/** All counters whose name begins so. */
export function sum(of: Snapshot, prefix: string): number {
  let total = 0
  for (const [name, value] of Object.entries(of.counters)) if (name.startsWith(prefix)) total += value
  return total
}

/** The counters of refusals by their reason begin so. */
export const rejected = 'rejected_total/'

/** Refusals of every kind. */
export const refusals = (of: Snapshot) => sum(of, rejected) + (of.counters['busy_rejections_total'] ?? 0)

/** The bound below which a part of the requests between two snapshots stayed, in seconds; NaN without requests. */
export function quantile(before: Snapshot, after: Snapshot, part: number): number {
  const counts = after.latency.map((bucket, i) => ({le: bucket.le, n: bucket.n - (before.latency[i]?.n ?? 0)}))
  const all = counts.at(-1)?.n ?? 0
  return all > 0 ? counts.find(bucket => bucket.n >= all * part)!.le : NaN
}
