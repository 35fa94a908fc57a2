// Each setting: its value, where that comes from, and what it means.
import {useState} from 'preact/hooks'
import {useLoad} from '../node/load'
import {may, session} from '../node/session'
import {useStore} from '../node/store'
import type {Setting, Settings as All} from '../node/types'
import {Access} from '../parts/access'
import {Command, ProblemNote, Section, State, Tabs} from '../parts/parts'
import {go, href, route} from '../route'

export function Settings() {
  useStore(session)
  const {query} = useStore(route)
  const [show, setShow] = useState<'all' | 'set'>('all')
  const all = useLoad<All>(may('admin') ? '/admin/config' : undefined)
  const text = query.get('q') ?? ''
  if (!may('admin')) return <><h1>Settings</h1><Access what="How this node is set up is for those who run it." /></>
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  const list = (all.value?.settings ?? []).filter(one => (show === 'all' || one.origin !== 'default') && words.every(word => `${one.key} ${one.doc} ${one.variable}`.toLowerCase().includes(word)))
  const sections = group(list)
  return <>
    <h1>Settings</h1>
    <div class="head-row">
      <input type="search" class="filter" aria-label="Find a setting" placeholder="Find a setting" value={text} onInput={event => go(href('settings', '', event.currentTarget.value ? {q: event.currentTarget.value} : {}), true)} />
      <Tabs label="Which settings" value={show} onChange={setShow} options={[['all', 'All'], ['set', 'Not the default']]} />
      {all.value && <span class="muted">{list.length} settings, profile {all.value.profile}</span>}
    </div>
    {all.problem && <ProblemNote problem={all.problem} />}
    {all.value && list.length === 0 && <section class="section"><div class="empty"><h3>{show === 'set' && !text ? 'Every setting has its default' : 'No setting is called so'}</h3><p>A setting is changed in the configuration file, or by a variable of the environment. The node takes most of them while it runs.</p><Command text="micronode config show --origin" /></div></section>}
    {[...sections].map(([name, some]) => <Section key={name} title={name}><ul class="settings">{some.map(one => <Row key={one.key} of={one} />)}</ul></Section>)}
  </>
}

function group(list: Setting[]): Map<string, Setting[]> {
  const all = new Map<string, Setting[]>()
  for (const one of list) {
    const name = one.key.split('.')[0]!
    all.set(name, [...all.get(name) ?? [], one])
  }
  return all
}

function Row({of}: {of: Setting}) {
  return <li>
    <div><code class="key">{of.key}</code><p class="small muted">{of.doc}</p></div>
    <div class="value">{of.secret ? <span class="muted">{of.value ? 'a secret, not shown' : 'not set'}</span> : <code>{of.value === '' ? '""' : of.value}</code>}{of.unit && <span class="muted"> {of.unit}</span>}</div>
    <div class="small from">{of.origin === 'default' ? <span class="muted">default</span> : <State signal="none">{of.origin}</State>}{of.restart && <div class="muted">a change needs a restart</div>}<details class="muted"><summary>Variable</summary><code>{of.variable}</code></details></div>
  </li>
}
