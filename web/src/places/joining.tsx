// How two nodes become acquainted: strangers that knocked, invitations to hand out.
import {useState} from 'preact/hooks'
import {count, short} from '../format'
import {problemOf, send, write, type ProblemDocument} from '../node/api'
import type {Invitation, Knock} from '../node/types'
import {Address, Ago, ProblemNote, Section, Snippet} from '../parts/parts'
import {QR} from '../parts/qr'

/** Nodes that wanted to connect and were refused. Whoever is accepted is a peer from then on. */
export function Knocks({knocks, onAccepted}: {knocks: Knock[]; onAccepted: () => void}) {
  const [gone, setGone] = useState<string[]>([]) // until the node says the same
  const [problem, setProblem] = useState<ProblemDocument>()
  const answer = (one: Knock, method: string) => {
    setProblem(undefined)
    send(method, `/overlay/knocks/${one.id}`).then(() => { setGone(ids => [...ids, one.id + one.last]); onAccepted() }, error => setProblem(problemOf(error)))
  }
  const list = knocks.filter(one => !gone.includes(one.id + one.last))
  if (!list.length && !problem) return null
  return <Section title="Knocks" aside={<span class="muted">{count(list.length)}</span>}>
    <p class="calm">These nodes wanted to connect, and were refused because this node does not know them. Compare the ID with what the other node shows before you let it in.</p>
    <ul class="knocks">{list.map(one => <li key={one.id}>
      <div><Address text={one.id} what="peer ID" /><div class="small muted">from {one.addr}, {one.count === 1 ? 'once' : `${count(one.count)} times`}, last <Ago at={one.last} /></div></div>
      <div class="actions"><button type="button" class="primary" aria-label={`Let ${short(one.id)} in`} onClick={() => answer(one, 'POST')}>Let it in</button><button type="button" aria-label={`Forget ${short(one.id)}`} onClick={() => answer(one, 'DELETE')}>Forget</button></div>
    </li>)}</ul>
    {problem && <ProblemNote problem={problem} />}
  </Section>
}

/** Makes a string that lets one node in, as text and as a QR code. */
export function Invite() {
  const [made, setMade] = useState<Invitation>()
  const [problem, setProblem] = useState<ProblemDocument>()
  const make = () => {
    setProblem(undefined)
    write<Invitation>('POST', '/overlay/invitations', {}).then(setMade, error => setProblem(problemOf(error)))
  }
  return <div class="add stack">
    <div class="head-row"><div class="grow"><h3>Invite a node</h3><p class="muted">One string lets one other node in, within an hour: <code>micronode join</code> takes it, and so does the field below on its page.</p></div>
      <button type="button" onClick={make}>Make an invitation</button></div>
    {made?.invitation && <><Snippet label="Invitation" text={made.invitation} />
      <p class="small muted">It expires <Ago at={made.expires} />. {made.reach} It is shown here and nowhere else: whoever has it may join.</p>
      <details><summary>Show it as a QR code</summary><QR text={made.invitation} /></details></>}
    {problem && <ProblemNote problem={problem} />}
  </div>
}

/** Connects to a peer by its address, or joins the node that made an invitation. */
export function Connect({onAdded}: {onAdded: () => void}) {
  const [text, setText] = useState('')
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState<ProblemDocument>()
  return <form class="add stack" onSubmit={event => {
    event.preventDefault()
    const typed = text.trim()
    if (!typed || busy) return
    setBusy(true); setProblem(undefined)
    const done = typed.includes('@') ? write('POST', '/overlay/peers', {peer: typed}) : write('POST', '/overlay/join', {invitation: typed})
    done.then(() => { setText(''); onAdded() }, error => setProblem(problemOf(error))).then(() => setBusy(false))
  }}>
    <label for="peer">Connect to a peer, by its address or by an invitation of it</label>
    <div class="field-row"><input id="peer" placeholder="ID@HOST:PORT, or an invitation" value={text} onInput={event => setText(event.currentTarget.value)} autocomplete="off" spellcheck={false} /><button type="submit" disabled={busy}>{busy ? 'Connecting…' : 'Connect'}</button></div>
    {problem && <ProblemNote problem={problem} />}
  </form>
}
