// Versions, who signed what, what changed in words, and the proof checked here.
import {useEffect, useState} from 'preact/hooks'
import {count} from '../format'
import {live} from '../node/live'
import {problemOf, read, write, type ProblemDocument} from '../node/api'
import {useLoad} from '../node/load'
import {checkProposal, checkVersion, sign, type Check} from '../node/proof'
import {may, session} from '../node/session'
import {useStore} from '../node/store'
import type {Head, Proposal, RegistryVersion} from '../node/types'
import {Address, Ago, Drawer, Empty, Facts, ProblemNote, Section, State, type Signal} from '../parts/parts'
import {go, href, route} from '../route'

export function Registry() {
  useStore(session)
  const {what} = useStore(route)
  const changed = useStore(live).snapshot?.counters['registry_version']
  const head = useLoad<Head>('/registry/head', 15_000)
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

function HeadOf({head}: {head: Head}) {
  const version = useLoad<RegistryVersion>(`/registry/${head.version}?items=false`)
  const set = version.value?.signer_set
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
  const enough = (of.approvals ?? []).length >= of.quorum.m
  const commit = () => write('POST', `/registry/commit/${of.proposal_id}`, {}).then(() => { setMessage('Committed.'); onDone() }, error => setProblem(problemOf(error)))
  return <li>
    <div class="head-row"><Address text={of.proposal_id} what="proposal" /><State signal={statusSignals[of.status] ?? 'none'}>{of.status}</State>
      <span class="muted">{(of.approvals ?? []).length} of {of.quorum.m} signatures{(of.approvals ?? []).length > 0 && `: ${of.approvals!.join(', ')}`}</span><span class="muted">expires <Ago at={of.expires_at} /></span></div>
    {of.reason && <p>{of.reason}</p>}
    {of.diff_text && <pre class="diff" tabIndex={0} role="group" aria-label="What would change">{of.diff_text}</pre>}
    {of.next && <p class="small muted">{of.next}</p>}
    <div class="actions">
      {!enough && may('registry:approve') && <Approve of={of} onDone={onDone} />}
      {enough && may('registry:commit') && <button type="button" class="primary" onClick={() => void commit()}>Commit</button>}
    </div>
    <p role="status" hidden={!message}>{message}</p>
    {problem && <ProblemNote problem={problem} />}
  </li>
}

/** The key file is read and used here; only the signature is sent. */
function Approve({of, onDone}: {of: Proposal; onDone: () => void}) {
  const [open, setOpen] = useState(false)
  const [signer, setSigner] = useState('')
  const [file, setFile] = useState<File>()
  const [wrong, setWrong] = useState('')
  const [problem, setProblem] = useState<ProblemDocument>()
  const approve = async () => {
    setWrong(''); setProblem(undefined)
    try {
      const whole = await read<Proposal>(`/registry/proposals/${of.proposal_id}`)
      const key = await read<{registry: string}>('/registry/key').catch(() => undefined)
      await checkProposal({...whole, proposal_id: of.proposal_id}, key?.registry)
      const signature = await sign(await file!.text(), whole.sign_this)
      await write('POST', `/registry/approvals/${of.proposal_id}`, {signer_id: signer, algo: 'ed25519', sig: signature, signed_at: new Date().toISOString()})
      setOpen(false); setSigner(''); setFile(undefined)
      onDone()
    } catch (error) {
      if (error instanceof Error && !('document' in error)) setWrong(error.message)
      else setProblem(problemOf(error))
    }
  }
  if (!open) return <button type="button" class="primary" onClick={() => setOpen(true)}>Approve with a key file</button>
  return <form class="form-grid approve" onSubmit={event => { event.preventDefault(); if (file && signer) void approve() }}>
    <label>Signer<input value={signer} onInput={event => setSigner(event.currentTarget.value)} autocomplete="off" placeholder="alice" /></label>
    <label>Key file, which stays in this browser<input type="file" onChange={event => { const chosen = event.currentTarget.files?.[0]; setFile(chosen); if (chosen) setSigner(chosen.name.replace(/(\.(pub|key|age|pem|txt))+$/, '').toLowerCase()) }} /></label>
    <div class="actions"><button type="submit" class="primary" disabled={!file || !signer}>Sign</button><button type="button" onClick={() => setOpen(false)}>Leave it</button></div>
    {wrong && <p class="note problem" role="alert">{wrong}</p>}
    {problem && <ProblemNote problem={problem} />}
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

function Versions({head}: {head: Head}) {
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
  const of = version.value
  return <li><a href={href('registry', String(number))}>Version {count(number)}</a>
    {of ? <><span>{of.version === 0 ? 'Created' : words(of.ops)}</span><span class="muted small">{(of.approvals ?? []).map(one => one.signer_id).join(', ')} · <Ago at={of.committed_at} /></span></> :
      <span class="muted">{version.problem?.detail ?? '…'}</span>}</li>
}

type Op = {op: string; id?: string; item?: {id: string; kind: string; manifest?: string}}

/** Operations in a sentence. */
function words(ops: unknown[] | null): string {
  const said = ((ops ?? []) as Op[]).map(one => one.op === 'delete' ? `Removed ${one.id}` : one.item?.kind === 'name' ? `Pointed ${one.item.id} to ${one.item.manifest?.slice(0, 12)}…` : `Set ${one.item?.kind ?? ''} ${one.item?.id ?? ''}`)
  return said.length > 3 ? `${said.slice(0, 3).join('. ')}, and ${said.length - 3} more` : said.join('. ')
}

function Version({number}: {number: number}) {
  const version = useLoad<RegistryVersion>(`/registry/${number}`)
  const before = useLoad<RegistryVersion>(number > 0 ? `/registry/${number - 1}?items=false` : undefined)
  const [checks, setChecks] = useState<Check[]>()
  const [wrong, setWrong] = useState('')
  const of = version.value
  const check = () => checkVersion(of!, before.value).then(setChecks, error => setWrong(String(error.message ?? error)))
  return <Drawer title={`Version ${number}`} onClose={() => go(href('registry'))}>
    {version.problem && <ProblemNote problem={version.problem} />}
    {of && <>
      <Facts list={[['Committed', <Ago at={of.committed_at} />], ['Hash', <Address text={of.hash} what="hash" />], ['Before it', number > 0 && <Address text={of.prev_hash} what="hash" />],
        ['Replaces', of.supersedes && `version ${of.supersedes.version}: ${of.supersedes.reason}`]]} />
      <section><h3>What changed</h3><p>{of.version === 0 ? 'The registry was created.' : words(of.ops)}</p></section>
      <section><h3>Who signed</h3>{(of.approvals ?? []).length === 0 ? <p class="muted">Nobody: the first version names the signers.</p> : <ul class="stack">{of.approvals!.map(one => <li key={one.public}><strong>{one.signer_id}</strong> <span class="muted">signed <Ago at={one.signed_at} /></span><div><Address text={one.public} what="key" head={14} /></div></li>)}</ul>}</section>
      <section><div class="head-row"><h3>Is it true?</h3><button type="button" disabled={number > 0 && !before.value} onClick={() => void check()}>Check the proof in this browser</button></div>
        <ul class="stack" aria-live="polite">{checks?.map(one => <li key={one.text}><State signal={one.ok ? 'good' : 'bad'}>{one.text}{one.ok ? '' : ': no'}</State></li>)}</ul>
        {wrong && <p class="note problem">{wrong}</p>}
      </section>
      <section><h3>Items</h3><div class="scroll-y"><table><thead><tr><th>Kind</th><th>Item</th><th>Value</th></tr></thead><tbody>
        {((of.items ?? []) as {kind: string; id: string; manifest?: string}[]).slice(0, 300).map(one => <tr key={one.kind + one.id}><td>{one.kind}</td><td>{one.id}</td><td>{one.manifest ? <a class="mono" href={href('content', one.manifest)}>{one.manifest.slice(0, 14)}…</a> : ''}</td></tr>)}
      </tbody></table></div></section>
    </>}
  </Drawer>
}
