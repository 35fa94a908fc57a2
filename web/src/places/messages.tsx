// The mailbox, search and the feed, where they are on.
import {useLayoutEffect, useState} from 'preact/hooks'
import {bytes, count, short} from '../format'
import {problemOf, write, type ProblemDocument} from '../node/api'
import {live} from '../node/live'
import {useLoad} from '../node/load'
import {may, session} from '../node/session'
import {useStore} from '../node/store'
import type {DeadLetter, FeedItem, SearchHit} from '../node/types'
import {Access} from '../parts/access'
import {Address, Ago, Command, Empty, ProblemNote, Section, State, Tabs} from '../parts/parts'
import {go, href, route} from '../route'

type Kind = 'mailbox' | 'search' | 'feed'

export function Messages() {
  useStore(session)
  const {what} = useStore(route)
  const kind: Kind = what === 'search' || what === 'feed' ? what : 'mailbox'
  return <>
    <div class="head-row"><h1>Messages</h1><Tabs label="What" value={kind} onChange={next => go(href('messages', next === 'mailbox' ? '' : next))} options={[['mailbox', 'Mailbox'], ['search', 'Search'], ['feed', 'Feed']]} /></div>
    {kind === 'mailbox' ? <Mailbox /> : kind === 'search' ? <Search /> : <Feed />}
  </>
}

function Mailbox() {
  const {snapshot} = useStore(live)
  const [box, setBox] = useState('')
  const [body, setBody] = useState('')
  const [sent, setSent] = useState('')
  const [problem, setProblem] = useState<ProblemDocument>()
  if (!may('mbox:send')) return <Access what="Sending to boxes, and what waits in them, is for those who hold a capability." />
  const of = (name: string) => snapshot?.counters[name] ?? 0
  return <>
    {snapshot && <Section title="Now"><p class="facts-line">{count(of('mailbox_depth'))} messages in {count(of('mailbox_boxes'))} boxes, {count(of('mailbox_leased'))} of them leased, {count(of('mailbox_dead'))} dead letters, {bytes(of('mailbox_bytes'))}.</p></Section>}
    <Section title="Send">
      <form class="stack" onSubmit={event => {
        event.preventDefault()
        setProblem(undefined)
        if (box && body) write<{id: string}>('POST', '/mbox/send', {box, body: btoa(String.fromCharCode(...new TextEncoder().encode(body)))}).then(answer => { setSent(answer.id); setBody('') }, error => setProblem(problemOf(error)))
      }}>
        <label>Box<input value={box} onInput={event => setBox(event.currentTarget.value)} placeholder="jobs" autocomplete="off" spellcheck={false} /></label>
        <label>Message<textarea value={body} onInput={event => setBody(event.currentTarget.value)} /></label>
        <div class="actions"><button type="submit" class="primary" disabled={!box || !body}>Send</button></div>
      </form>
      {sent && <p role="status"><State signal="good">Stored as {sent}</State></p>}
      {problem && <ProblemNote problem={problem} />}
      {box && <Command text={`micronode mbox recv ${box} --ack`} />}
    </Section>
    {box && may('mbox:recv') && <DeadLetters box={box} />}
  </>
}

function DeadLetters({box}: {box: string}) {
  const dead = useLoad<{letters: DeadLetter[] | null}>(`/mbox/dlq?box=${encodeURIComponent(box)}`)
  const [problem, setProblem] = useState<ProblemDocument>()
  const list = dead.value?.letters ?? []
  const act = (what: string, id: string) => write('POST', `/mbox/dlq/${what}`, {box, id}).then(dead.again, error => setProblem(problemOf(error)))
  return <Section title={`Dead letters of ${box}`}>
    {dead.problem ? <ProblemNote problem={dead.problem} /> : list.length === 0 ? <p class="calm">None.</p> : <ul class="stack">{list.map(one => <li key={one.id} class="head-row">
      <span>{text(one.body)}</span><span class="muted small">{one.deliveries} deliveries, {one.reason ?? 'no reason given'}, <Ago at={one.died_at} /></span>
      <span class="actions"><button type="button" onClick={() => void act('resend', one.id)}>Send again</button><button type="button" class="danger" onClick={() => void act('drop', one.id)}>Drop</button></span>
    </li>)}</ul>}
    {problem && <ProblemNote problem={problem} />}
  </Section>
}

const text = (base64: string) => new TextDecoder().decode(Uint8Array.from(atob(base64 ?? ''), c => c.charCodeAt(0)))

function Search() {
  const {query} = useStore(route)
  const given = query.get('q') ?? ''
  const [words, setWords] = useState(given)
  useLayoutEffect(() => setWords(given), [given]) // before anybody can type
  const hits = useLoad<{hits: SearchHit[] | null; total: number}>(given ? `/search?q=${encodeURIComponent(given)}` : '/search?q=a')
  if (hits.problem && isOff('search', hits.problem)) return <Off icon="search" title="Search is off" text="When it is on, the node finds words in names, paths and texts." problem={hits.problem} command="MICRO_FACETS__SEARCH__ENABLED=true micronode run" again={hits.again} />
  return <Section title="Search">
    <form class="field-row" onSubmit={event => { event.preventDefault(); go(href('messages', 'search', words ? {q: words} : {})) }}>
      <input type="search" aria-label="Words" placeholder="river crossings -draft" value={words} onInput={event => setWords(event.currentTarget.value)} /><button type="submit" class="primary">Search</button>
    </form>
    {given && hits.problem && <ProblemNote problem={hits.problem} />}
    {given && hits.value && <><p class="calm" role="status">{count(hits.value.total)} found</p><ul class="stack hits">{(hits.value.hits ?? []).map((one, i) => <li key={i}>
      {one.address ? <a href={href('content', one.address)}>{one.path || one.name || short(one.id ?? '', 19, 12)}</a> : <strong>{one.name || one.id}</strong>} <span class="muted small">{one.kind}</span>{one.snippet && <p>{one.snippet.replaceAll(/<\/?[a-z]+>/g, '')}</p>}{one.address && <Address text={one.address} />}
    </li>)}</ul></>}
  </Section>
}

function Feed() {
  const [user, setUser] = useState('')
  const [shown, setShown] = useState('')
  const [body, setBody] = useState('')
  const [problem, setProblem] = useState<ProblemDocument>()
  const feed = useLoad<{items: FeedItem[] | null}>(`/feed/${encodeURIComponent(shown || 'a')}`, shown ? 10_000 : 0)
  if (feed.problem && isOff('feed', feed.problem)) return <Off icon="messages" title="The feed is off" text="When it is on, people post to those who follow them." problem={feed.problem} command="MICRO_FACETS__FEED__ENABLED=true MICRO_FACETS__GRAPH__ENABLED=true micronode run" again={feed.again} />
  return <Section title="Feed">
    <form class="field-row" onSubmit={event => { event.preventDefault(); setShown(user.trim()) }}><input aria-label="User" placeholder="ann" value={user} onInput={event => setUser(event.currentTarget.value)} autocomplete="off" /><button type="submit" class="primary">Show the feed</button></form>
    {shown && may('feed:post') && <form class="field-row" onSubmit={event => { event.preventDefault(); if (body) write('POST', `/feed/${encodeURIComponent(shown)}`, {body}).then(() => { setBody(''); feed.again() }, error => setProblem(problemOf(error))) }}>
      <input aria-label="Post" placeholder={`Post as ${shown}`} value={body} onInput={event => setBody(event.currentTarget.value)} /><button type="submit">Post</button></form>}
    {shown && (feed.problem ?? problem) && <ProblemNote problem={(problem ?? feed.problem)!} />}
    {shown && feed.value && ((feed.value.items ?? []).length === 0 ? <p class="calm">Nothing in it yet.</p> : <ul class="stack">{feed.value.items!.map(one => <li key={one.id}><strong>{one.author}</strong> <span class="muted small"><Ago at={one.at} /></span><p>{one.body}</p></li>)}</ul>)}
  </Section>
}

/** As the node says it; any other problem of a search is shown as such. */
const isOff = (facet: string, problem: ProblemDocument) => problem.detail === `the facet ${facet} is off on this node`

function Off({icon, title, text, problem, command, again}: {icon: string; title: string; text: string; problem: ProblemDocument; command: string; again: () => void}) {
  return <section class="section"><Empty icon={icon} title={title} text={`${text} ${problem.next}`} command={command}><button type="button" class="primary" onClick={again}>Look again</button></Empty></section>
}
