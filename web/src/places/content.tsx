// Objects and names: put, look up, open, verify, share, and who has it.
import {useEffect, useRef, useState} from 'preact/hooks'
import {bytes, count, seconds, short} from '../format'
import {problemOf, send, write, type ProblemDocument} from '../node/api'
import {addressOf} from '../node/hash'
import {useLoad} from '../node/load'
import {decodeManifest, encodeManifest, type Entry} from '../node/manifest'
import {may, session} from '../node/session'
import {useStore} from '../node/store'
import type {NameRecord, ObjectList, Resolution} from '../node/types'
import {cancel, dismiss, fromDrop, put, retry, uploads, type Upload} from '../node/uploads'
import {Access} from '../parts/access'
import {Bar} from '../parts/charts'
import {Icon} from '../parts/icons'
import {Address, Ago, Drawer, Empty, Facts, ProblemNote, Section, State, Tabs, Typed} from '../parts/parts'
import {QR} from '../parts/qr'
import {go, href, route} from '../route'

export function Content() {
  useStore(session)
  const {what} = useStore(route)
  const finished = useStore(uploads).filter(one => one.step === 'done').length
  return <>
    <div class="head-row"><h1>Content</h1></div>
    {may('object:put') ? <Drop /> : <LookUp />}
    <Uploads />
    <Names turn={finished} />
    {may('admin') ? <Objects turn={finished} /> : <Access what="Which objects are stored here, and putting more, is for those who hold a capability. Whoever knows an address may look it up." />}
    {what && <Thing key={what} id={what} onClose={() => go(href('content'))} />}
  </>
}

/** For visitors, who have an address and want what it means. */
function LookUp() {
  const [text, setText] = useState('')
  return <Section title="Look up">
    <form class="field-row" onSubmit={event => { event.preventDefault(); if (text.trim()) go(href('content', text.trim())) }}>
      <input aria-label="An address or a name" placeholder="b3:… or name:…" value={text} onInput={event => setText(event.currentTarget.value)} spellcheck={false} autocomplete="off" />
      <button type="submit" class="primary">Look up</button>
    </form>
  </Section>
}

/** Files and folders are dropped here, chosen, or pasted. */
function Drop() {
  const [over, setOver] = useState(false)
  const files = useRef<HTMLInputElement>(null), folder = useRef<HTMLInputElement>(null)
  useEffect(() => folder.current?.setAttribute('webkitdirectory', ''), [])
  return <section class={`drop ${over ? 'over' : ''}`} aria-label="Put files"
    onDragOver={event => { event.preventDefault(); setOver(true) }} onDragLeave={() => setOver(false)}
    onDrop={event => { event.preventDefault(); setOver(false); if (event.dataTransfer) void fromDrop(event.dataTransfer.items) }}>
    <span class="disc"><Icon name="upload" /></span>
    <div><h2>Drop files or folders here</h2><p class="muted">Each is stored under the BLAKE3 hash of its bytes. What is here already is not sent again.</p></div>
    <div class="actions">
      <button type="button" class="primary" onClick={() => files.current!.click()}>Choose files</button>
      <button type="button" onClick={() => folder.current!.click()}>Choose a folder</button>
    </div>
    <input ref={files} type="file" multiple hidden aria-label="Files to put" onChange={event => { for (const one of event.currentTarget.files ?? []) put(one.name, [one]); event.currentTarget.value = '' }} />
    <input ref={folder} type="file" multiple hidden aria-label="A folder to put" onChange={event => {
      const list = [...event.currentTarget.files ?? []]
      if (list.length) put(list[0]!.webkitRelativePath.split('/')[0]!, list, list.map(one => one.webkitRelativePath.split('/').slice(1).join('/')))
      event.currentTarget.value = ''
    }} />
  </section>
}

const steps = {hashing: 'Hashing', sending: 'Sending', done: 'Stored', failed: 'Failed', cancelled: 'Stopped'}

function Uploads() {
  const list = useStore(uploads)
  if (!list.length) return null
  return <Section title="Being put"><ul class="uploads" aria-live="polite">{list.map(one => <li key={one.id}>
    <span class="name">{one.name}{one.paths.length > 0 && <span class="muted"> · {count(one.files.length)} files</span>}</span>
    <span class="figures muted">{bytes(one.size)}</span>
    <span class="step">{one.step === 'done' ? <State signal="good">{doneWords(one)}</State> : one.step === 'failed' ? <State signal="bad">Failed</State> : `${steps[one.step]} ${one.size ? Math.floor(one.done / one.size * 100) : 100} %`}</span>
    <span class="actions">
      {one.address && <a class="button" href={href('content', one.address)}>Show</a>}
      {(one.step === 'failed' || one.step === 'cancelled') && <button type="button" onClick={() => retry(one.id)}>Go on</button>}
      {(one.step === 'hashing' || one.step === 'sending') && <button type="button" onClick={() => cancel(one.id)}>Stop</button>}
      {one.step !== 'hashing' && one.step !== 'sending' && <button type="button" class="quiet icon-only" aria-label={`Remove ${one.name} from this list`} onClick={() => dismiss(one.id)}><Icon name="close" /></button>}
    </span>
    {(one.step === 'hashing' || one.step === 'sending') && <Progress upload={one} />}
    {one.problem && <ProblemNote problem={one.problem} />}
  </li>)}</ul></Section>
}

const doneWords = (one: Upload) => one.skipped === one.files.length ? 'Was here already' : one.skipped ? `Stored, ${one.skipped} were here already` : 'Stored'

function Progress({upload}: {upload: Upload}) {
  return <span class="progress" role="progressbar" aria-label={upload.name} aria-valuemin={0} aria-valuemax={upload.size} aria-valuenow={upload.done}>
    <span style={{transform: `scaleX(${upload.size ? upload.done / upload.size : 1})`}} />
  </span>
}

function Names({turn}: {turn: number}) {
  const names = useLoad<{names: NameRecord[] | null; next?: string}>('/names?limit=100', 10_000)
  useEffect(names.again, [turn])
  const list = names.value?.names ?? []
  if (names.problem) return names.problem.status === 401 || names.problem.status === 403 ? null : <Section title="Names"><ProblemNote problem={names.problem} /></Section>
  if (names.loading && !names.value) return null
  return <Section title="Names" aside={list.length > 0 && <span class="muted">{count(list.length)}</span>}>
    {list.length === 0 ? <Empty icon="content" title="This node has given no names" text="A name points to an address, and can be pointed to another one later. Others verify that it comes from this node." command="micronode name set docs b3:…" /> :
      <div class="scroll-x"><table>
        <thead><tr><th>Name</th><th>Points to</th><th>Set</th><th>Ends</th></tr></thead>
        <tbody>{list.map(one => <tr key={one.name}>
          <td><a href={href('content', 'name:' + one.name)}>{one.name}</a>{one.shadowed && <> <State signal="warn">shadowed by the registry</State></>}</td>
          <td><Address text={one.manifest} /></td><td>{one.issued && <Ago at={one.issued} />}</td><td>{one.expires && <Ago at={one.expires} />}</td>
        </tr>)}</tbody>
      </table></div>}
  </Section>
}

function Objects({turn}: {turn: number}) {
  const [pages, setPages] = useState<string[]>([''])
  const after = pages.at(-1)!
  const objects = useLoad<ObjectList>('/o?limit=50' + (after && '&after=' + after), 10_000)
  useEffect(objects.again, [turn])
  const list = objects.value?.objects ?? []
  return <Section title="Objects" aside={list.length > 0 && <>
    {pages.length > 1 && <button type="button" class="quiet" onClick={() => setPages(pages.slice(0, -1))}>Previous page</button>}
    {objects.value?.next && <button type="button" class="quiet" onClick={() => setPages([...pages, objects.value!.next!])}>Next page</button>}
  </>}>
    {objects.problem ? <ProblemNote problem={objects.problem} /> : !objects.value ? <p class="calm">Reading the list…</p> :
      list.length === 0 ? <Empty icon="content" title="Nothing is stored yet" text="An object is bytes that are known by their hash. Put one, and anybody with its address can fetch and verify it." command="micronode put FILE">
        <button type="button" class="primary" onClick={() => put('hello.txt', [new File(['Hello from the page of a micronode.\n'], 'hello.txt')])}>Put a greeting</button>
      </Empty> : <div class="scroll-x"><table>
        <thead><tr><th>Address</th><th class="n">Size</th><th>Kept</th></tr></thead>
        <tbody>{list.map(one => <tr key={one.address}>
          <td><a class="mono" href={href('content', one.address)} title={one.address}>{short(one.address, 19, 12)}</a></td><td class="n">{bytes(one.size)}</td><td class="muted">{one.class}</td>
        </tr>)}</tbody>
      </table></div>}
  </Section>
}

/** A name or an address: what it is, whether it is what it says, who has it. */
function Thing({id, onClose}: {id: string; onClose: () => void}) {
  const found = useLoad<Resolution>('/resolve/' + encodeURIComponent(id))
  const address = id.startsWith('b3:') ? id : found.value?.manifest_cid
  return <Drawer title={id.startsWith('b3:') ? 'Object' : id.replace(/^name:/, '')} onClose={onClose}>
    {address ? <ObjectFacts address={address} name={id.startsWith('name:') ? id.slice(5) : undefined} found={found.value} /> : found.problem ? <ProblemNote problem={found.problem} /> : <p class="calm">Looking it up…</p>}
    {address && <section><h3>Who has it</h3>
      {found.problem ? found.problem.status === 404 ? <p class="muted">No provider is known.</p> : <ProblemNote problem={found.problem} /> : !found.value ? <p class="calm">Asking…</p> : (found.value.providers ?? []).length === 0 ? <p class="muted">No provider is known.</p> :
        <table><thead><tr><th>Provider</th><th>Seen</th><th class="n">Score</th></tr></thead><tbody>
          {found.value.providers!.map(one => <tr key={one.id}><td><Address text={one.id} what="provider" /><div class="small muted">{[one.class, one.latency, one.region, one.addr].filter(Boolean).join(' · ')}</div></td><td>{one.last_seen_s === undefined ? '' : `${seconds(one.last_seen_s)} ago`}</td><td class="n">{one.score.toFixed(2)}</td></tr>)}
        </tbody></table>}
    </section>}
  </Drawer>
}

interface Head { size: number; type: string; here: boolean }

function ObjectFacts({address, name, found}: {address: string; name?: string; found?: Resolution}) {
  useStore(session)
  const [head, setHead] = useState<Head>()
  const [entries, setEntries] = useState<Entry[]>()
  const [message, setMessage] = useState('')
  const [problem, setProblem] = useState<ProblemDocument>()
  const [turn, setTurn] = useState(0)
  useEffect(() => {
    send('HEAD', `/o/${address}`).then(async answer => {
      const size = Number(answer.headers.get('Content-Length') ?? 0)
      setHead({size, type: answer.headers.get('Content-Type') ?? '', here: true})
      if (size > 16 << 20) return
      const start = await send('GET', `/o/${address}`, undefined, {Range: 'bytes=0-11'})
      if (await start.text() === '{"entries":[') setEntries(decodeManifest(await (await send('GET', `/o/${address}`)).text()))
    }).catch(() => setHead({size: 0, type: '', here: false}))
  }, [address, turn])
  const act = (what: Promise<unknown>, words: string) => {
    setProblem(undefined)
    what.then(() => { setMessage(words); setTurn(turn + 1) }, error => setProblem(problemOf(error)))
  }
  return <>
    <Facts list={[['Address', <Address text={address} head={22} tail={14} />], ['Size', head?.here && `${bytes(head.size)} (${count(head.size)} bytes)`],
      ['Name', name], ['Where', head ? head.here ? <State signal="good">on this node</State> : <State signal="none">not on this node</State> : '…'],
      ['Found in', found?.source], ['Fresh for', found && found.freshness_s > 0 && seconds(found.freshness_s)],
      ['A folder of', entries && `${count(entries.length)} files, ${bytes(entries.reduce((all, one) => all + one.size, 0))}`]]} />
    <div class="actions">
      {head?.here && !entries && <a class="button primary" href={`/o/${address}`} target="_blank" rel="noopener"><Icon name="open" />Open</a>}
      {head?.here && <a class="button" href={`/o/${address}?download=true`}>Download</a>}
      {head && !head.here && <button type="button" class="primary" disabled={!may('admin')} onClick={() => act(write('POST', `/fetch/${address}`), 'Fetched, and verified.')}>Fetch it here</button>}
      {head?.here && may('index:pin') && <><button type="button" onClick={() => act(write('POST', '/admin/pin', {b3: address}), 'Pinned: it is never evicted.')}>Pin</button>
        <button type="button" onClick={() => act(write('POST', '/admin/unpin', {b3: address}), 'Unpinned: it may be evicted when space is needed.')}>Unpin</button></>}
    </div>
    <p role="status" class={message ? 'note good' : 'empty-status'} hidden={!message}>{message}</p>
    {problem && <ProblemNote problem={problem} />}
    {head?.here && <Verify address={address} size={head.size} />}
    {entries && <section><h3>Files</h3><div class="scroll-y"><table><thead><tr><th>Path</th><th class="n">Size</th></tr></thead><tbody>
      {entries.slice(0, 500).map(one => <tr key={one.path}><td><a href={`/o/${one.b3}?filename=${encodeURIComponent(one.path.split('/').at(-1)!)}`} target="_blank" rel="noopener">{one.path}</a></td><td class="n">{bytes(one.size)}</td></tr>)}
    </tbody></table></div></section>}
    <Share address={address} name={name} />
    {head?.here && may('name:set') && <GiveName address={address} head={head} folder={entries !== undefined} />}
    {head?.here && may('object:rm') && <details class="danger-zone"><summary>Remove it from this node</summary>
      <Typed word={address.slice(3, 9)} verb="Remove" onConfirm={() => act(send('DELETE', `/o/${address}`), 'Removed. Other nodes may still have it.')} /></details>}
  </>
}

/** Hashes the bytes here, in the browser, and compares. */
function Verify({address, size}: {address: string; size: number}) {
  const [done, setDone] = useState<number>()
  const [result, setResult] = useState<string>()
  const [problem, setProblem] = useState<ProblemDocument>()
  const run = async () => {
    setDone(0); setResult(undefined); setProblem(undefined)
    try {
      const answer = await send('GET', `/o/${address}`, undefined, {'Cache-Control': 'no-cache'})
      setResult(await addressOf(answer.body!, setDone))
    } catch (error) {
      setProblem(problemOf(error))
    }
    setDone(undefined)
  }
  return <section>
    <div class="head-row"><h3>Is it what it says?</h3><button type="button" disabled={done !== undefined} onClick={() => void run()}>Verify in this browser</button></div>
    {done !== undefined && <Bar value={done} max={size} share label="Hashed" text={`${bytes(done)} of ${bytes(size)}`} />}
    <div role="status">{result && (result === address ? <p class="note good"><State signal="good">The BLAKE3 hash of these bytes is the address</State></p> :
      <p class="note problem"><State signal="bad">The bytes are not those of the address</State><span class="mono">{result}</span></p>)}</div>
    {problem && <ProblemNote problem={problem} />}
  </section>
}

function Share({address, name}: {address: string; name?: string}) {
  const [as, setAs] = useState<'link' | 'name' | 'qr'>('link')
  const link = `${location.origin}/o/${address}`
  return <section><div class="head-row"><h3>Share</h3><Tabs label="Share as" value={as} onChange={setAs} options={[['link', 'Link'], ['name', 'Name'], ['qr', 'QR code']]} /></div>
    {as === 'link' && <Address text={link} what="link" head={36} tail={12} />}
    {as === 'name' && <div class="stack"><Address text={name ? `name:${name}` : address} what="name" head={30} /><p class="muted small">Anybody with a micronode can fetch it: <code>micronode get {name ? `name:${name}` : short(address)}</code></p></div>}
    {as === 'qr' && <QR text={link} />}
  </section>
}

/** A name points to a manifest; for a file, one is made that holds only that. */
function GiveName({address, head, folder}: {address: string; head: Head; folder: boolean}) {
  const [name, setName] = useState('')
  const [problem, setProblem] = useState<ProblemDocument>()
  const [given, setGiven] = useState('')
  const submit = async () => {
    setProblem(undefined)
    try {
      let manifest = address
      if (!folder) {
        const text = encodeManifest([{b3: address, path: name, size: head.size, type: head.type}])
        manifest = (await (await send('POST', '/put', text)).json() as {address: string}).address
      }
      await write('PUT', `/names/${encodeURIComponent(name)}`, {manifest})
      setGiven(name)
    } catch (error) {
      setProblem(problemOf(error))
    }
  }
  return <section><h3>Give it a name</h3>
    <form class="field-row" onSubmit={event => { event.preventDefault(); if (name) void submit() }}>
      <input aria-label="Name" placeholder="docs" value={name} onInput={event => setName(event.currentTarget.value)} spellcheck={false} autocomplete="off" /><button type="submit">Set the name</button>
    </form>
    {given && <p class="note good" role="status"><State signal="good">name:{given} points to it</State></p>}
    {problem && <ProblemNote problem={problem} />}
  </section>
}
