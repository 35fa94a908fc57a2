// The peers as a small graph and as a table, and the messages of a topic.
import {useEffect, useRef, useState} from 'preact/hooks'
import {seconds, short} from '../format'
import {problemOf, send, type ProblemDocument} from '../node/api'
import {readEvents} from '../node/events'
import {live} from '../node/live'
import {useLoad} from '../node/load'
import {may, session} from '../node/session'
import {useStore} from '../node/store'
import type {Peer} from '../node/types'
import {Access} from '../parts/access'
import {Address, Ago, Command, Drawer, Empty, Facts, ProblemNote, Section, State, Typed} from '../parts/parts'
import {go, href, route} from '../route'
import {Connect, Invite, Knocks} from './joining'

const connected = (peer: Peer) => peer.state === 'active'

export function Network() {
  useStore(session)
  const {what} = useStore(route)
  const now = useStore(live)
  const peers = useLoad<{peers: Peer[] | null}>('/overlay/peers', 5000)
  useEffect(peers.again, [now.snapshot?.counters['sessions_active']])
  const list = peers.value?.peers ?? []
  const self = now.snapshot?.status.peer_id, at = now.snapshot?.status.listen.overlay
  const chosen = list.find(one => one.id === what)
  return <>
    <h1>Network</h1>
    {peers.problem ? peers.problem.status === 401 || peers.problem.status === 403 ? <Access what="The peers of this node are for those who run it." problem={peers.problem} /> : <ProblemNote problem={peers.problem} /> : peers.value && <Section title="Peers" aside={list.length > 0 && <span class="muted">{list.filter(connected).length} of {list.length} connected</span>}>
      {list.length === 0 ? <Empty icon="network" title="This node knows no other node" text={at ? `Others reach it at ${at}. Give one of them this node's overlay address, or connect to one here.` : 'Connect it to a peer by the line that the other node prints at its start.'} command={self && at ? `micronode run --peer ${self}@${at}` : 'micronode peers add ID@HOST:PORT'} /> :
        <div class="columns"><Graph peers={list} self={self} /><PeerTable peers={list} /></div>}
      {may('admin') && <><Invite /><Connect onAdded={peers.again} /></>}
    </Section>}
    {may('admin') && <Knocks knocks={now.snapshot?.status.knocks ?? []} onAccepted={peers.again} />}
    <Topics />
    {what && peers.value && !chosen && <Drawer title="Peer" onClose={() => go(href('network'))}>
      <Address text={what} what="peer ID" head={22} tail={14} />
      <p>This node does not know this peer. By its address it can connect to it:</p>
      <Command text={`micronode peers add ${what}@HOST:PORT`} />
    </Drawer>}
    {chosen && <PeerDrawer peer={chosen} onClose={() => go(href('network'))} onGone={() => { peers.again(); go(href('network')) }} />}
  </>
}

/** This node in the middle; the slower a peer answers, the farther away it is. */
function Graph({peers, self}: {peers: Peer[]; self?: string}) {
  const shown = peers.slice(0, 40), size = 340, middle = size / 2
  const slowest = Math.max(1, ...shown.map(one => one.rtt_ms ?? 0))
  const place = (peer: Peer, i: number) => {
    const angle = i / shown.length * 2 * Math.PI - Math.PI / 2
    const far = connected(peer) ? 74 + 62 * Math.log1p(peer.rtt_ms ?? 0) / Math.log1p(slowest) : 146
    return {x: middle + Math.cos(angle) * far, y: middle + Math.sin(angle) * far}
  }
  return <figure class="graph"><svg viewBox={`0 0 ${size} ${size}`} role="img" aria-label={`This node and ${peers.length} peers; the table beside it has the same`}>
    {[80, 140].map(r => <circle key={r} cx={middle} cy={middle} r={r} class="ring" />)}
    {shown.map((one, i) => { const at = place(one, i); return <line key={one.id} x1={middle} y1={middle} x2={at.x} y2={at.y} class={connected(one) ? one.pq ? 'edge pq' : 'edge' : 'edge off'} /> })}
    {shown.map((one, i) => { const at = place(one, i); return <g key={one.id} class={connected(one) ? 'peer' : 'peer off'} onClick={() => go(href('network', one.id))}><circle cx={at.x} cy={at.y} r="9" /><text x={at.x} y={at.y + (at.y < middle ? -16 : 24)} text-anchor="middle">{one.id.slice(0, 5)}</text><title>{one.id}</title></g> })}
    <g class="self"><circle cx={middle} cy={middle} r="14" /><text x={middle} y={middle + 30} text-anchor="middle">{self ? self.slice(0, 5) : 'this node'}</text></g>
  </svg><figcaption class="small muted">Nearer is faster. A thick line is post-quantum.</figcaption></figure>
}

function PeerTable({peers}: {peers: Peer[]}) {
  return <div class="scroll-x"><table>
    <thead><tr><th>Peer</th><th>State</th><th>Key exchange</th><th class="n">Answers in</th></tr></thead>
    <tbody>{peers.map(one => <tr key={one.id}>
      <td><a class="mono" href={href('network', one.id)} title={one.id}>{short(one.id, 8, 5)}</a><div class="small muted">{one.addr}</div></td>
      <td><State signal={connected(one) ? 'good' : 'warn'}>{one.state}</State></td><td>{connected(one) ? one.pq ? 'post-quantum' : 'classical' : ''}</td>
      <td class="n">{one.rtt_ms ? seconds(one.rtt_ms / 1000) : ''}</td>
    </tr>)}</tbody>
  </table></div>
}

function PeerDrawer({peer, onClose, onGone}: {peer: Peer; onClose: () => void; onGone: () => void}) {
  const [problem, setProblem] = useState<ProblemDocument>()
  return <Drawer title="Peer" onClose={onClose}>
    <Facts list={[['Peer ID', <Address text={peer.id} what="peer ID" />], ['State', <State signal={connected(peer) ? 'good' : 'warn'}>{peer.state}</State>], ['Address', peer.addr], ['Who called', peer.dialed ? 'this node' : 'the peer'],
      ['Key exchange', connected(peer) && (peer.pq ? 'post-quantum, hybrid' : 'classical')], ['Answers in', peer.rtt_ms && seconds(peer.rtt_ms / 1000)], ['Since', peer.since && <Ago at={peer.since} />],
      ['Last error', peer.last_error], ['Tries again in', peer.retry_in_ms && seconds(peer.retry_in_ms / 1000)]]} />
    {may('admin') && peer.dialed && <details class="danger-zone"><summary>Remove this peer</summary><Typed word={peer.id.slice(0, 6)} verb="Remove" onConfirm={() => send('DELETE', `/overlay/peers/${peer.id}`).then(onGone, error => setProblem(problemOf(error)))} /></details>}
    {problem && <ProblemNote problem={problem} />}
  </Drawer>
}

interface Message { topic: string; origin: string; id: string; data: string; ts: number; signed?: boolean }
const keptMessages = 200

/** The messages of a topic while somebody looks. */
function Topics() {
  const [topic, setTopic] = useState('')
  const [text, setText] = useState('')
  const [field, setField] = useState('')
  const [messages, setMessages] = useState<Message[]>([])
  const [problem, setProblem] = useState<ProblemDocument>()
  const [lost, setLost] = useState(0)
  const token = useStore(session)?.token
  const list = useRef<Message[]>([])
  useEffect(() => {
    if (!topic) return
    let stop = new AbortController()
    const listen = () => {
      stop.abort()
      if (document.hidden) return
      stop = new AbortController()
      const {signal} = stop
      readEvents(`/overlay/subscribe/${topic.split('/').map(encodeURIComponent).join('/')}`, signal, event => {
        if (event.name === 'lagged') setLost(n => n + (JSON.parse(event.data) as {missed: number}).missed)
        if (event.name !== 'message') return
        list.current = [JSON.parse(event.data) as Message, ...list.current].slice(0, keptMessages)
        setMessages(list.current)
      }, () => setProblem(undefined)).catch(error => { if (!signal.aborted) setProblem(problemOf(error)) })
    }
    list.current = []
    setMessages([]); setLost(0); setProblem(undefined)
    listen()
    document.addEventListener('visibilitychange', listen)
    return () => { stop.abort(); document.removeEventListener('visibilitychange', listen) }
  }, [topic, token])
  const publish = () => {
    setProblem(undefined)
    send('POST', `/overlay/publish/${topic.split('/').map(encodeURIComponent).join('/')}`, text, {'Content-Type': 'application/octet-stream'}).then(() => setText(''), error => setProblem(problemOf(error)))
  }
  return <Section title="Topics" aside={topic && <button type="button" class="quiet" onClick={() => setTopic('')}>Leave {topic}</button>}>
    <form class="field-row" onSubmit={event => { event.preventDefault(); setTopic(field.trim()) }}>
      <input aria-label="Topic" placeholder="news/local" value={field} onInput={event => setField(event.currentTarget.value)} autocomplete="off" spellcheck={false} /><button type="submit">Listen</button>
    </form>
    {topic && may('overlay:pub') && <form class="field-row" onSubmit={event => { event.preventDefault(); if (text) publish() }}>
      <input aria-label="Message" placeholder={`A message to ${topic}`} value={text} onInput={event => setText(event.currentTarget.value)} autocomplete="off" /><button type="submit">Publish</button>
    </form>}
    {problem && <ProblemNote problem={problem} />}
    {lost > 0 && <State signal="warn">{lost} messages came faster than they could be shown</State>}
    {topic && !problem && messages.length === 0 && <p class="calm">Listening to {topic}. Nothing has come yet.</p>}
    <ol class="events scroll-y messages" aria-live="polite" tabIndex={messages.length ? 0 : undefined} aria-label="Messages">{messages.map(one => <li key={one.id}><Ago at={one.ts} /><span>{decode(one.data)} <span class="muted small">{short(one.origin, 6, 4)}{one.signed === false && ', not signed'}</span></span></li>)}</ol>
  </Section>
}

/** Text as text, everything else by its length. */
function decode(base64: string): string {
  const bytes = Uint8Array.from(atob(base64 ?? ''), c => c.charCodeAt(0))
  try {
    return new TextDecoder('utf-8', {fatal: true}).decode(bytes)
  } catch {
    return `${bytes.length} bytes`
  }
}
