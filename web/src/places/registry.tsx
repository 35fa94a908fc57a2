// Versions, who signed what, what changed in words, and the proof checked here.
import {useEffect, useState} from 'preact/hooks'
import {count} from '../format'
import {live} from '../node/live'
import {problemOf, read, write, type ProblemDocument} from '../node/api'
import {useLoad} from '../node/load'
import {changesIn, checkProposal, isEncrypted, sign, type Approvable} from '../node/approval'
import {describe, type Op} from '../node/change'
import {checkVersion, readVersion, signersIn, unproved, type Check} from '../node/proof'
import {may, session} from '../node/session'
import {useStore} from '../node/store'
import type {Bundle, Proposal, RegistryHead, RegistryVersion} from '../node/types'
import {Address, Ago, Command, Drawer, Empty, Facts, ProblemNote, Section, State, type Signal} from '../parts/parts'
import {go, href, route} from '../route'

export function Registry() {
  useStore(session)
  const {what} = useStore(route)
  const changed = useStore(live).snapshot?.counters['registry_version']
  const head = useLoad<RegistryHead>('/registry/head', 15_000)
  useEffect(head.again, [changed])
  if (!head.value && head.problem) {
    return <><h1>Registry</h1><section class="section">{head.problem.status === 404 || head.problem.code === 'not_found' ? <Empty icon="registry" title="There is no registry yet"
      text="A registry is a list that several people govern: M of N sign each change, and strangers can verify all of it. Its creator names the signers by their public keys." command="micronode registry init --m 2 --key alice.pub --key bob.pub --key carol.pub">
      <button type="button" class="primary" onClick={head.again}>Look again</button></Empty> : <ProblemNote problem={head.problem} />}</section></>
  }
  if (!head.value) return <h1>Registry</h1>
  return <>
    <h1>Registry</h1>
    <HeadOf head={head.value} />
    <Proposals turn={head.value.version} />
    {may('registry:propose') && <Propose />}
    <Versions head={head.value} />
    {/^\d+$/.test(what) && <Version key={what} number={Number(what)} />}
  </>
}

function HeadOf({head}: {head: RegistryHead}) {
  const version = useLoad<RegistryVersion>(`/registry/${head.version}?items=false`)
  const set = signersIn(readVersion(version.value)?.ops ?? []) ?? version.value?.signer_set // its own set is the one that signed it
  return <Section title="Now">
    <Facts list={[['Version', count(head.version)], ['Committed', <Ago at={head.committed_at} />], ['Hash', <Address text={head.hash} what="hash" />],
      ['Rule', set && `${set.m} of ${set.keys?.length ?? 0} sign`], ['Signers', set && <span>{set.keys?.map(one => one.signer_id).join(', ')}</span>]]} />
  </Section>
}

const statusSignals: Record<string, Signal> = {open: 'warn', ready: 'good', committed: 'good', stale: 'bad', expired: 'bad'}

function Proposals({turn}: {turn: number}) {
  const list = useLoad<{proposals: Proposal[] | null}>('/registry/proposals', 5000)
  useEffect(list.again, [turn])
  const proposals = list.value?.proposals ?? []
  return <Section title="Waiting for signatures">
    {list.problem ? <ProblemNote problem={list.problem} /> : proposals.length === 0 ? <p class="calm">No proposal is open.</p> :
      <ul class="proposals">{proposals.map(one => <ProposalRow key={one.proposal_id} of={one} onDone={list.again} />)}</ul>}
  </Section>
}

function ProposalRow({of, onDone}: {of: Proposal; onDone: () => void}) {
  const [problem, setProblem] = useState<ProblemDocument>()
  const [message, setMessage] = useState('')
  const [approving, setApproving] = useState(false)
  const enough = (of.approvals ?? []).length >= of.quorum.m
  const changes = describe(changesIn(of))
  const commit = () => write('POST', `/registry/commit/${of.proposal_id}`, {}).then(() => { setMessage('Committed.'); onDone() }, error => setProblem(problemOf(error)))
  return <li>
    <div class="head-row"><Address text={of.proposal_id} what="proposal" /><State signal={statusSignals[of.status] ?? 'none'}>{of.status}</State>
      <span class="muted">{(of.approvals ?? []).length} of {of.quorum.m} signatures{(of.approvals ?? []).length > 0 && `: ${of.approvals!.join(', ')}`}</span><span class="muted">expires <Ago at={of.expires_at} /></span></div>
    {of.reason && <p>{of.reason}</p>}
    {!approving && <Diff of={changes} label="What would change" />}
    {of.next && <p class="small muted">{of.next}</p>}
    <div class="actions">
      {!enough && may('registry:approve') && !approving && <button type="button" class="primary" onClick={() => setApproving(true)}>Approve with a key file</button>}
      {enough && may('registry:commit') && <button type="button" class="primary" onClick={() => void commit()}>Commit</button>}
    </div>
    {approving && <Approve id={of.proposal_id} listed={changes} onEnd={done => { setApproving(false); if (done) onDone() }} />}
    <p role="status" hidden={!message}>{message}</p>
    {problem && <ProblemNote problem={problem} />}
  </li>
}

function Diff({of, label}: {of: string; label: string}) {
  return <pre class="diff" tabIndex={0} role="group" aria-label={label}>{of}</pre>
}

/** The change is read, checked and shown; exactly that is signed. The key file is used here; only the signature is sent. */
function Approve({id, listed, onEnd}: {id: string; listed: string; onEnd: (done: boolean) => void}) {
  const [seen, setSeen] = useState<Approvable>()
  const [unknown, setUnknown] = useState('') // why the node does not say which registry it has
  const [signer, setSigner] = useState('')
  const [key, setKey] = useState<{name: string; text: string}>()
  const [wrong, setWrong] = useState('')
  const [problem, setProblem] = useState<ProblemDocument>()
  const failed = (error: unknown) => error instanceof Error && !('document' in error) ? setWrong(error.message) : setProblem(problemOf(error))
  const changes = seen && describe(seen.changes)
  useEffect(() => {
    const look = async () => {
      const checked = await checkProposal(await read<Proposal>(`/registry/proposals/${id}`), id)
      const own = await read<{registry: string}>('/registry/key').catch(error => setUnknown(problemOf(error).detail))
      if (own && own.registry !== checked.message.registry) throw new Error(`The message is for another registry, ${checked.message.registry}. Do not sign it.`)
      setSeen(checked)
    }
    look().catch(failed)
  }, [id])
  const choose = async (file?: File) => {
    setKey(file && {name: file.name, text: await file.text()})
    if (file) setSigner(file.name.replace(/(\.(pub|key|age|pem|txt))+$/, '').toLowerCase())
  }
  const approve = async () => {
    setWrong(''); setProblem(undefined)
    try {
      const sig = await sign(key!.text, seen!.signThis)
      await write('POST', `/registry/approvals/${id}`, {signer_id: signer, algo: 'ed25519', sig, signed_at: new Date().toISOString()})
      onEnd(true)
    } catch (error) {
      failed(error)
    }
  }
  const sealed = key && isEncrypted(key.text)
  return <form class="stack" onSubmit={event => { event.preventDefault(); if (seen && key && signer && !sealed) void approve() }}>
    {seen && <>
      <h3>You sign this, and nothing else</h3>
      <Diff of={changes!} label="What is signed" />
      <p class="small">In the registry <Address text={seen.message.registry} what="registry" />, until <Ago at={seen.message.expires_at} />{seen.message.supersedes && `, in place of version ${seen.message.supersedes.version}: ${seen.message.supersedes.reason}`}</p>
      {changes !== listed && <p class="note problem" role="alert">The list of this node shows another change than the one to be signed. Ask its operator why.</p>}
      {unknown && <p class="note warn">The node does not say which registry it has: {unknown} Compare the one above with the one you know.</p>}
      <div class="form-grid">
        <label>Signer<input value={signer} onInput={event => setSigner(event.currentTarget.value)} autocomplete="off" placeholder="alice" /></label>
        <label>Key file, which stays in this browser<input type="file" onChange={event => void choose(event.currentTarget.files?.[0])} /></label>
      </div>
      {sealed && <div class="note warn" role="alert"><strong>This key file is encrypted</strong><p>The page asks for no passphrase. This asks for it in a terminal, on the machine with the key, and signs the same:</p>
        <Command text={`micronode registry approve ${id} --key ${/^[\w.@-]+$/.test(key.name) ? key.name : 'FILE'}`} /></div>}
    </>}
    {wrong && <p class="note problem" role="alert">{wrong}</p>}
    {problem && <ProblemNote problem={problem} />}
    <div class="actions">{seen && <button type="submit" class="primary" disabled={!key || !signer || sealed}>Sign</button>}<button type="button" onClick={() => onEnd(false)}>Leave it</button></div>
  </form>
}

function Propose() {
  const [kind, setKind] = useState<'put' | 'delete'>('put')
  const [name, setName] = useState('')
  const [manifest, setManifest] = useState('')
  const [problem, setProblem] = useState<ProblemDocument>()
  const [made, setMade] = useState('')
  const submit = () => {
    setProblem(undefined)
    const op = kind === 'put' ? {op: 'put', item: {kind: 'name', id: name, manifest}} : {op: 'delete', id: name}
    write<{proposal_id: string}>('POST', '/registry/proposals', {schema_version: '1.0.0', ops: [op]}).then(answer => { setMade(answer.proposal_id); setName(''); setManifest('') }, error => setProblem(problemOf(error)))
  }
  return <Section title="Propose">
    <form class="form-grid" onSubmit={event => { event.preventDefault(); if (name) submit() }}>
      <label>Change<select value={kind} onChange={event => setKind(event.currentTarget.value as 'put')}><option value="put">Point a name to an address</option><option value="delete">Remove an item</option></select></label>
      <label>{kind === 'put' ? 'Name' : 'Item'}<input value={name} onInput={event => setName(event.currentTarget.value)} autocomplete="off" placeholder="docs" /></label>
      {kind === 'put' && <label>Address<input value={manifest} onInput={event => setManifest(event.currentTarget.value)} autocomplete="off" placeholder="b3:…" /></label>}
      <div class="actions"><button type="submit">Propose</button></div>
    </form>
    {made && <p class="calm" role="status">Proposed as {made}. It waits for signatures.</p>}
    {problem && <ProblemNote problem={problem} />}
  </Section>
}

const perPage = 20

function Versions({head}: {head: RegistryHead}) {
  const [from, setFrom] = useState(0) // how many of the newest are skipped
  const numbers = Array.from({length: Math.min(perPage, head.version - from + 1)}, (_, i) => head.version - from - i)
  return <Section title="Versions" aside={<>
    {from > 0 && <button type="button" class="quiet" onClick={() => setFrom(Math.max(0, from - perPage))}>Newer</button>}
    {head.version - from >= perPage && <button type="button" class="quiet" onClick={() => setFrom(from + perPage)}>Older</button>}
  </>}>
    <ol class="versions">{numbers.map(n => <VersionRow key={n} number={n} />)}</ol>
  </Section>
}

function VersionRow({number}: {number: number}) {
  const version = useLoad<RegistryVersion>(`/registry/${number}?items=false`)
  const of = readVersion(version.value)
  return <li><a href={href('registry', String(number))}>Version {count(number)}</a>
    {of ? <><span>{number === 0 ? 'Created' : words(of.ops)}</span><span class="muted small">{of.header.approvals.length > 0 && of.header.approvals.map(one => one.signer_id).join(', ') + ' · '}<Ago at={of.header.committed_at} /></span></> :
      <span class="muted">{version.problem?.detail ?? (version.value ? unreadable : '…')}</span>}</li>
}

const unreadable = 'The bytes that the node gives for this version cannot be read.'

/** Operations in a sentence. */
function words(ops: Op[]): string {
  const said = ops.map(one => one.op === 'delete' ? `Removed ${one.id}` : one.item?.kind === 'name' ? `Pointed ${one.item.id} to ${String(one.item['manifest']).slice(0, 12)}…` : `Set ${one.item?.kind ?? ''} ${one.item?.id ?? ''}`)
  return said.length > 3 ? `${said.slice(0, 3).join('. ')}, and ${said.length - 3} more` : said.join('. ')
}

/** What is shown of a version is read from the bytes that its hash stands for, but for the items. */
function Version({number}: {number: number}) {
  const version = useLoad<RegistryVersion>(`/registry/${number}`)
  const before = useLoad<RegistryVersion>(number > 0 ? `/registry/${number - 1}?items=false` : undefined)
  const [proof, setProof] = useState<{checks: Check[]; of: Bundle}>()
  const [problem, setProblem] = useState<ProblemDocument>()
  const [wrong, setWrong] = useState('')
  const whole = version.value, of = readVersion(whole)
  const check = async () => {
    setWrong(''); setProblem(undefined); setProof(undefined)
    try {
      const bundle = await read<Bundle>(`/registry/bundle/${number}`)
      setProof({checks: await checkVersion(whole!, before.value, bundle), of: bundle})
    } catch (error) {
      if (error instanceof Error && !('document' in error)) setWrong(`The proof cannot be read: ${error.message}`)
      else setProblem(problemOf(error))
    }
  }
  return <Drawer title={`Version ${number}`} onClose={() => go(href('registry'))}>
    {version.problem && <ProblemNote problem={version.problem} />}
    {whole && !of && <p class="note problem" role="alert">{unreadable}</p>}
    {whole && of && <>
      <Facts list={[['Committed', <Ago at={of.header.committed_at} />], ['Hash', <Address text={whole.hash} what="hash" />], ['Before it', number > 0 && <Address text={of.header.prev_hash} what="hash" />],
        ['Replaces', of.header.supersedes && `version ${of.header.supersedes.version}: ${of.header.supersedes.reason}`]]} />
      <section><h3>What changed</h3><Diff of={describe(of.changes)} label="What changed" /></section>
      <section><h3>Who signed</h3>{of.header.approvals.length === 0 ? <p class="muted">Nobody: the first version names the signers.</p> : <ul class="stack">{of.header.approvals.map(one => <li key={one.public}><strong>{one.signer_id}</strong> <span class="muted">signed <Ago at={one.signed_at} /></span><div><Address text={one.public} what="key" head={14} /></div></li>)}</ul>}</section>
      <section><div class="head-row"><h3>Is it true?</h3><button type="button" disabled={number > 0 && !before.value} onClick={() => void check()}>Check the proof in this browser</button></div>
        <ul class="stack" aria-live="polite">{proof?.checks.map(one => <li key={one.text}><State signal={one.ok ? 'good' : 'bad'}>{one.text}{one.ok ? '' : ': no'}</State></li>)}
        </ul>
        {proof?.checks.every(one => one.ok) && <>
          <Facts list={[['Registry', <Address text={proof.of.registry} what="registry" head={14} />], ['Key of its log', <Address text={proof.of.key} what="key" head={28} />]]} />
          <ul class="stack small muted">{unproved().map(one => <li key={one}>Not checked: {one}</li>)}</ul>
        </>}
        {wrong && <p class="note problem" role="alert">{wrong}</p>}
        {problem && <ProblemNote problem={problem} />}
      </section>
      <section><h3>Items</h3><div class="scroll-y" tabIndex={0} role="group" aria-label="Items"><table><thead><tr><th>Kind</th><th>Item</th><th>Value</th></tr></thead><tbody>
        {((whole.items ?? []) as {kind: string; id: string; manifest?: string}[]).slice(0, 300).map(one => <tr key={one.kind + one.id}><td>{one.kind}</td><td>{one.id}</td><td>{one.manifest ? <a class="mono" href={href('content', one.manifest)}>{one.manifest.slice(0, 14)}…</a> : ''}</td></tr>)}
      </tbody></table></div></section>
    </>}
  </Drawer>
}
