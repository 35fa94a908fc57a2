// The frame around the places: the rail, the header, the search.
import type {ComponentType} from 'preact'
import {useEffect, useRef, useState} from 'preact/hooks'
import {short} from './format'
import {live} from './node/live'
import {session} from './node/session'
import {useStore} from './node/store'
import {Icon} from './parts/icons'
import {State} from './parts/parts'
import {Cache} from './places/cache'
import {Content} from './places/content'
import {Messages} from './places/messages'
import {Network} from './places/network'
import {Overview, verdictOf} from './places/overview'
import {Registry} from './places/registry'
import {Settings} from './places/settings'
import {go, href, route} from './route'

interface Place { key: string; title: string; view: ComponentType; wide?: boolean }

/** A place whose code is loaded when it is opened first: the map is as large as all others together. */
function later(load: () => Promise<ComponentType>): ComponentType {
  let loaded: ComponentType | undefined
  return () => {
    const [, redraw] = useState({})
    useEffect(() => { if (!loaded) void load().then(view => { loaded = view; redraw({}) }) }, [])
    const View = loaded
    return View ? <View /> : null
  }
}

export const places: Place[] = [
  {key: 'overview', title: 'Overview', view: Overview},
  {key: 'content', title: 'Content', view: Content},
  {key: 'map', title: 'Map', view: later(async () => (await import('./places/map')).MapPlace), wide: true},
  {key: 'network', title: 'Network', view: Network},
  {key: 'registry', title: 'Registry', view: Registry},
  {key: 'cache', title: 'Cache', view: Cache},
  {key: 'settings', title: 'Settings', view: Settings},
  {key: 'messages', title: 'Messages', view: Messages},
]

export function App() {
  const at = useStore(route)
  const place = places.find(one => one.key === at.place) ?? places[0]!
  const main = useRef<HTMLElement>(null)
  const first = useRef(true)
  useEffect(() => {
    document.title = `${place.title} · micronode`
    const link = document.querySelector<HTMLElement>('.rail [aria-current]'), bar = link?.closest('ul')
    if (link && bar) bar.scrollLeft = link.offsetLeft + (link.offsetWidth - bar.clientWidth) / 2 // of a narrow window; scrollIntoView would have Tab begin there
    if (!first.current) main.current?.focus({preventScroll: true}) // a screen reader reads the new place
    first.current = false
  }, [place])
  return <>
    <a class="skip" href="#main" onClick={event => { event.preventDefault(); main.current?.focus() }}>Skip to the content</a>
    <nav class="rail" aria-label="Places">
      <a class="brand" href={href('overview')} aria-label="micronode: overview"><Mark /><span>micronode</span></a>
      <ul>{places.map(one => <li key={one.key}><a href={href(one.key)} aria-current={one === place ? 'page' : undefined}><Icon name={one.key} /><span>{one.title}</span></a></li>)}</ul>
    </nav>
    <Header />
    <main id="main" ref={main} tabIndex={-1} class={place.wide ? 'wide' : undefined}><place.view /></main>
  </>
}

function Mark() {
  return <svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" /><path d="M10 21V12.500l6 5.500 6-5.500V21" /><circle cx="10" cy="22.500" r="2.300" /><circle cx="22" cy="22.500" r="2.300" /></svg>
}

const linkWords = {connecting: '', live: '', public: '', lost: 'No answer from the node. Trying again…'}

function Header() {
  const now = useStore(live)
  const known = useStore(session)
  const verdict = now.readiness && verdictOf(now.readiness)
  const id = now.snapshot?.status.peer_id
  return <header class="top">
    <div class="who">{id ? <><span class="muted small">Node</span> <code title={id}>{short(id, 6, 4)}</code></> : <code class="muted">{location.host}</code>}</div>
    <SearchField />
    <p class="lost" role="status">{linkWords[now.link]}</p>
    {known && <button type="button" class="quiet forget" title="Forget the capability of this page" onClick={() => session.set(undefined)}><Icon name="key" /><span>Forget</span></button>}
    {verdict && <a class="pill" href={href('overview') + '#readiness'} aria-label={`Readiness: ${verdict.word}`} onClick={event => { event.preventDefault(); go(href('overview')); document.getElementById('readiness')?.scrollIntoView() }}>
      <State signal={now.link === 'lost' ? 'none' : verdict.signal}>{now.link === 'lost' ? 'Unknown' : verdict.word}</State></a>}
  </header>
}

/** Takes anything: an address, a name, a peer, a setting. */
function SearchField() {
  const [text, setText] = useState('')
  const field = useRef<HTMLInputElement>(null)
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      const inField = /^(INPUT|TEXTAREA|SELECT)$/.test((event.target as Element).tagName)
      if (event.key === '/' && !inField && !event.metaKey && !event.ctrlKey) { event.preventDefault(); field.current?.focus() }
    }
    addEventListener('keydown', focus)
    return () => removeEventListener('keydown', focus)
  }, [])
  return <form class="search" role="search" onSubmit={event => {
    event.preventDefault()
    const to = find(text.trim())
    if (to) { go(to); setText(''); field.current?.blur() }
  }}>
    <Icon name="search" />
    <input ref={field} type="search" aria-label="Find an address, a name, a peer or a setting" placeholder="b3:…, name:…, a peer, a setting" value={text} onInput={event => setText(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
    <kbd aria-hidden="true">/</kbd>
  </form>
}

/** Where a search leads, by the shape of what was typed. */
export function find(text: string): string | undefined {
  if (!text) return undefined
  if (/^[0-9a-f]{64}$/i.test(text)) return href('content', 'b3:' + text.toLowerCase())
  if (/^(b3:|name:|baf)/.test(text)) return href('content', text)
  if (/^[a-z2-7]{50,60}(@.*)?$/.test(text)) return href('network', text.split('@')[0])
  if (/^[a-z_]+(\.[a-z_0-9]+)+$/.test(text)) return href('settings', '', {q: text})
  const place = places.find(one => one.title.toLowerCase() === text.toLowerCase())
  return place ? href(place.key) : href('settings', '', {q: text})
}
