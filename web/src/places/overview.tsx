// Is it healthy, why not, what do I type.
import {useState} from 'preact/hooks'
import {bytes, count, rate, seconds} from '../format'
import {live, rejected, type Moment} from '../node/live'
import {useStore} from '../node/store'
import type {NodeEvent, Queue, Readiness, Snapshot} from '../node/types'
import {Access} from '../parts/access'
import {Bar, Spark} from '../parts/charts'
import {Address, Ago, Command, Facts, Section, State, type Signal} from '../parts/parts'

export function Overview() {
  const now = useStore(live)
  return <>
    <h1>Overview</h1>
    {now.readiness ? <Verdict readiness={now.readiness} /> : <div class="verdict none"><p class="big">Asking the node…</p></div>}
    {now.snapshot ? <Inside snapshot={now.snapshot} history={now.history} refusing={now.refusing} events={now.events} /> : now.link === 'connecting' ? null : <Access what="Queues, services, rates and events are for those who run the node." />}
  </>
}

/** The one sentence of a node: how it is, and what to do. */
export function verdictOf(readiness: Readiness): {signal: Signal; word: string; text: string} {
  if (!readiness.ready) return {signal: 'bad', word: 'Not ready', text: 'The node does not serve reads or writes.'}
  if (!readiness.write_ready) return {signal: 'bad', word: 'Reads only', text: 'The node serves reads, and refuses writes.'}
  if (readiness.degraded) return {signal: 'warn', word: 'Degraded', text: 'The node works, with reduced capacity.'}
  return {signal: 'good', word: 'Ready', text: `The node serves reads and writes.${(readiness.reasons ?? []).length ? '' : ' There is nothing to do.'}`}
}

function Verdict({readiness}: {readiness: Readiness}) {
  const verdict = verdictOf(readiness)
  return <section class={`verdict ${verdict.signal}`} id="readiness" aria-label="Readiness">
    <p class="big" role="status"><State signal={verdict.signal}>{verdict.word}</State></p>
    <p class="lead">{verdict.text}</p>
    {(readiness.reasons ?? []).length > 0 && <ul class="reasons">
      {readiness.reasons!.map(one => <li key={one.dep}>
        <strong>{one.dep}</strong><span>{one.reason}</span><span class="next">{one.next}</span>
      </li>)}
    </ul>}
  </section>
}

function Inside({snapshot, history, refusing, events}: {snapshot: Snapshot; history: Moment[]; refusing: Rates; events: NodeEvent[]}) {
  const last = history.at(-1), {status} = snapshot
  return <>
    <div class="numbers">
      <Number title="Requests" value={rate(last?.requests ?? 0)} unit="per second" values={history.map(one => one.requests)} />
      <Number title="Refusals" value={rate(last?.refused ?? 0)} unit="per second" values={history.map(one => one.refused)} tone="bad" />
      <Number title="99 % answered within" value={seconds(last?.p99 ?? NaN)} unit="" values={history.map(one => one.p99)} />
      <Number title="Memory" value={bytes(status.memory.used)} unit={status.memory.limit ? `of ${bytes(status.memory.limit)}` : ''} values={history.map(one => one.memory)} />
    </div>
    <Queues snapshot={snapshot} refusing={refusing} />
    <div class="columns">
      <Services snapshot={snapshot} />
      <Events events={events} />
    </div>
    <Section title="This node">
      <Facts list={[
        ['Peer ID', <Address text={status.peer_id} what="peer ID" />],
        ['Version', status.version], ['Profile', status.profile], ['Running since', <Ago at={snapshot.started} />],
        ['Gateway', <Address text={status.listen.http} head={40} />], ['Overlay', status.listen.overlay && <Address text={`${status.peer_id}@${status.listen.overlay}`} what="overlay address" head={12} tail={20} />],
        ['Objects', `${count(status.store.objects)}, ${bytes(status.store.bytes)}${status.store.budget ? ` of ${bytes(status.store.budget)}` : ''}`],
        ['Disk', status.amnesia ? <State signal="good">Amnesia: {status.confined}</State> : status.confined],
      ]} />
      {status.parts && <table><thead><tr><th>Part</th><th>State</th><th>Address</th></tr></thead><tbody>
        {status.parts.map(one => <tr key={one.name}><td>{one.name}</td><td><State signal={one.up ? 'good' : 'bad'}>{one.up ? 'up' : 'down'}</State></td><td>{one.at || 'this process'}</td></tr>)}
      </tbody></table>}
    </Section>
  </>
}

function Number({title, value, unit, values, tone}: {title: string; value: string; unit: string; values: number[]; tone?: 'bad'}) {
  return <div class="number">
    <h2>{title}</h2>
    <p><span class="figure">{value}</span> <span class="muted">{unit}</span></p>
    <Spark values={values} tone={tone} label={`${title}: the last two minutes`} />
  </div>
}

/** Per second, by queue and by the counter of a reason. */
type Rates = Record<string, number>

/** Queues in use come first; the rest is behind a button, so that a busy one is seen. */
function Queues({snapshot, refusing}: {snapshot: Snapshot; refusing: Rates}) {
  const [all, setAll] = useState(false)
  const queues = snapshot.status.queues ?? []
  const keyOf = (one: Queue) => `${one.service}/${one.name}`
  const lost = (one: Queue) => snapshot.refused[keyOf(one)] ?? 0, now = (one: Queue) => refusing[keyOf(one)] ?? 0
  const fullness = (one: Queue) => one.cap > 0 ? one.depth / one.cap : 0
  const busy = queues.filter(one => one.depth > 0 || lost(one) > 0).sort((a, b) => +(now(b) > 0) - +(now(a) > 0) || fullness(b) - fullness(a) || lost(b) - lost(a))
  const shown = all ? queues : busy.slice(0, 12)
  const reasons = Object.entries(snapshot.counters).filter(([name, n]) => name.startsWith(rejected) && n > 0).sort(([, a], [, b]) => b - a)
  return <Section title="Queues" aside={<button type="button" class="quiet" aria-expanded={all} onClick={() => setAll(!all)}>{all ? 'Show those in use' : `Show all ${queues.length}`}</button>}>
    {shown.length === 0 ? <p class="calm">All {queues.length} queues are empty, and none has refused anything.</p> : <ul class="queues">
      {shown.map(one => <li key={one.service + one.name}>
        <span class="name"><span class="muted">{one.service}</span> {one.name}</span>
        <Bar value={one.depth} max={one.cap} refusing={now(one) > 0} label={`${one.service} ${one.name}`} />
        <span class="figures">{count(one.depth)} <span class="muted">of {count(one.cap)}</span></span>
        <span class="lost">{now(one) > 0 ? <State signal="bad">refuses {rate(now(one))} per second</State> : lost(one) > 0 && <State signal="warn">{count(lost(one))} refused</State>}</span>
      </li>)}
    </ul>}
    {reasons.length > 0 && <table class="reasons-refused"><thead><tr><th>Requests refused because of</th><th class="n">Per second</th><th class="n">Since the start</th></tr></thead><tbody>
      {reasons.map(([name, n]) => <tr key={name}><td>{name.slice(rejected.length).replaceAll('_', ' ')}</td><td class="n">{rate(refusing[name] ?? 0)}</td><td class="n">{count(n)}</td></tr>)}
    </tbody></table>}
  </Section>
}

const signals: Record<string, Signal> = {running: 'good', degraded: 'warn', restarting: 'warn', waiting: 'warn', failed: 'bad', down: 'bad', crashed: 'bad'}

function Services({snapshot}: {snapshot: Snapshot}) {
  const [all, setAll] = useState(false)
  const services = snapshot.status.services ?? []
  const odd = services.filter(one => one.state !== 'running' && one.state !== 'finished' || one.restarts > 0 || one.last_error)
  const shown = all ? services : odd
  return <Section title="Services" aside={<button type="button" class="quiet" aria-expanded={all} onClick={() => setAll(!all)}>{all ? 'Show the unusual' : `Show all ${services.length}`}</button>}>
    {shown.length === 0 ? <p class="calm">All {services.length} services run, and none was restarted.</p> : <div class="scroll-y" tabIndex={0} role="group" aria-label="Services"><table>
      <thead><tr><th>Service</th><th>State</th><th class="n">Restarts</th></tr></thead>
      <tbody>{shown.map(one => <tr key={one.name}>
        <td>{one.name}{one.last_error && <div class="small muted">{one.last_error}</div>}</td><td><State signal={signals[one.state] ?? 'none'}>{one.state}</State></td><td class="n">{count(one.restarts)}</td>
      </tr>)}</tbody>
    </table></div>}
  </Section>
}

function Events({events}: {events: NodeEvent[]}) {
  return <Section title="Events">
    {events.length === 0 ? <><p class="calm">Nothing has happened yet.</p><Command text="micronode events" /></> : <ol class="events scroll-y" aria-live="off" tabIndex={0} aria-label="The last events">
      {events.slice(0, 40).map(one => <li key={one.at + one.type + one.name}><Ago at={one.at} /><span><strong>{one.type.replaceAll('_', ' ')}</strong> {one.name && <code>{one.name.length > 30 ? one.name.slice(0, 29) + '…' : one.name}</code>} <span class="muted">{one.detail}</span></span></li>)}
    </ol>}
  </Section>
}
