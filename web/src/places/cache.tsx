// What the cache of origins answered, fetched and refused, and how to forget some of it.
import {useState} from 'preact/hooks'
import {bytes, count} from '../format'
import {problemOf, write, type ProblemDocument} from '../node/api'
import {live} from '../node/live'
import {may, session} from '../node/session'
import {useStore} from '../node/store'
import {Access} from '../parts/access'
import {Bar} from '../parts/charts'
import {Empty, ProblemNote, Section, State} from '../parts/parts'

export function Cache() {
  useStore(session)
  const {snapshot, link} = useStore(live)
  if (!snapshot) return <><h1>Cache</h1>{link !== 'connecting' && <Access what="What the cache holds, and how often it could answer, is for those who run the node." />}</>
  const of = (name: string) => snapshot.counters[name] ?? 0
  const hits = of('edge_cache_hits_total'), misses = of('edge_cache_misses_total'), all = hits + misses
  const reasons = Object.entries(snapshot.counters).filter(([name, n]) => name.startsWith('edge_rejects_total/') && n > 0).sort(([, a], [, b]) => b - a)
  const indexHits = of('index_cache_hits_total'), indexAll = indexHits + of('index_cache_misses_total')
  const {store} = snapshot.status
  return <>
    <h1>Cache</h1>
    <Section title="Origins">
      {all === 0 && reasons.length === 0 ? <Empty icon="cache" title="Nothing was asked of an origin yet" text="The node can fetch from origins that you allow, keep what they answer as long as they permit, and go on when they fail." command="micronode run --allow tiles.example.org" /> :
        <div class="big-numbers">
          <Figure title="Answered from the cache" value={all ? `${Math.round(hits / all * 100)} %` : '–'} text={`${count(hits)} of ${count(all)}`} />
          <Figure title="Asked the origin" value={count(misses)} text={`${count(of('edge_coalesced_total'))} joined a fetch that ran`} />
          <Figure title="Stale, but served" value={count(of('edge_stale_total'))} text="because the origin failed" />
          <Figure title="Refused" value={count(reasons.reduce((sum, [, n]) => sum + n, 0))} text={`for ${reasons.length} reasons`} />
        </div>}
      {reasons.length > 0 && <table><thead><tr><th>Refused because of</th><th class="n">Times</th></tr></thead><tbody>{reasons.map(([name, n]) => <tr key={name}><td>{name.split('/')[1]!.replaceAll('_', ' ')}</td><td class="n">{count(n)}</td></tr>)}</tbody></table>}
    </Section>
    <div class="columns">
      <Section title="Objects">
        <p class="meter-line"><span>{bytes(of('store_held_bytes'))} held{store.budget > 0 && ` of ${bytes(store.budget)}`}</span><span class="muted">{count(store.objects)} objects</span></p>
        {store.budget > 0 && <Bar value={of('store_held_bytes')} max={store.budget} label="The store against its budget" text={`${bytes(of('store_held_bytes'))} of ${bytes(store.budget)}`} />}
        <p class="muted small">{count(of('store_evictions_total'))} evicted, {count(of('store_refusals_total'))} refused for lack of space.</p>
      </Section>
      <Section title="Names and providers">
        <p class="meter-line"><span>{indexAll ? `${Math.round(indexHits / indexAll * 100)} % answered from the cache` : 'Nothing was looked up yet'}</span><span class="muted">{count(indexAll)} look-ups</span></p>
        {indexAll > 0 && <Bar value={indexHits} max={indexAll} share label="Look-ups answered from the cache" text={`${count(indexHits)} of ${count(indexAll)}`} />}
      </Section>
    </div>
    {may('edge:purge') && <Purge />}
  </>
}

function Figure({title, value, text}: {title: string; value: string; text: string}) {
  return <div><h3 class="muted">{title}</h3><p class="figure">{value}</p><p class="muted small">{text}</p></div>
}

function Purge() {
  const [text, setText] = useState('')
  const [exact, setExact] = useState(false)
  const [done, setDone] = useState<number>()
  const [problem, setProblem] = useState<ProblemDocument>()
  return <Section title="Purge">
    <form class="stack" onSubmit={event => {
      event.preventDefault()
      setDone(undefined); setProblem(undefined)
      if (text.trim()) write<{purged: number}>('POST', '/admin/edge/purge', exact ? {url: text.trim()} : {prefix: text.trim()}).then(answer => setDone(answer.purged), error => setProblem(problemOf(error)))
    }}>
      <label for="purge">Forget the answers for URLs that begin with</label>
      <div class="field-row"><input id="purge" placeholder="https://tiles.example.org/v2/" value={text} onInput={event => setText(event.currentTarget.value)} autocomplete="off" spellcheck={false} /><button type="submit" class="danger">Purge</button></div>
      <label class="check"><input type="checkbox" checked={exact} onChange={event => setExact(event.currentTarget.checked)} /> Only this one URL</label>
    </form>
    <p role="status">{done !== undefined && <State signal="good">{done === 1 ? 'One answer is' : `${count(done)} answers are`} forgotten</State>}</p>
    {problem && <ProblemNote problem={problem} />}
  </Section>
}
