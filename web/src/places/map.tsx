// Every pack on a map: look, click, share.
import type {Map as MapView, MapGeoJSONFeature} from 'maplibre-gl'
import {useEffect, useRef, useState} from 'preact/hooks'
import {bytes, count} from '../format'
import {library} from '../map/library'
import {schemaOf} from '../map/schema'
import {colourOf, styleOf, type Look} from '../map/style'
import {useLoad} from '../node/load'
import type {Pack, TileJSON} from '../node/types'
import {Icon} from '../parts/icons'
import {Access} from '../parts/access'
import {Address, Ago, Empty, Facts, ProblemNote, Snippet, State, Tabs} from '../parts/parts'
import {go, href, route} from '../route'
import {useStore} from '../node/store'

const served = (pack: Pack) => pack.state === 'serving' || pack.state === 'degraded'

export function MapPlace() {
  const at = useStore(route)
  const packs = useLoad<{packs: Pack[] | null}>('/edge/packs', 15_000)
  const list = packs.value?.packs ?? []
  const pack = list.find(one => one.name === at.what) ?? list.find(served) ?? list[0]
  if (packs.problem && !packs.value) return <div class="plain"><h1>Map</h1>{packs.problem.status === 401 ? <Access what="The packs of this node are not open to everybody." problem={packs.problem} /> : <ProblemNote problem={packs.problem} />}</div>
  if (!packs.value) return <div class="plain"><h1>Map</h1><p class="calm">Reading the packs…</p></div>
  if (!pack) {
    return <div class="plain"><h1>Map</h1><section class="section"><Empty icon="map" title="This node serves no map yet" text="A pack is one file with all tiles of a map: PMTiles or MBTiles, vector or raster. The node serves it to every map library, and this place draws it."
      command="micronode run --pack city.pmtiles"><button type="button" class="primary" onClick={packs.again}>Look again</button></Empty></section></div>
  }
  return <MapOf key={pack.name} pack={pack} packs={list} />
}

function MapOf({pack, packs}: {pack: Pack; packs: Pack[]}) {
  const tilejson = useLoad<TileJSON>(pack.tilejson || undefined)
  const [tab, setTab] = useState<'pack' | 'layers' | 'feature' | 'use'>('pack')
  const [features, setFeatures] = useState<MapGeoJSONFeature[]>([])
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set())
  const [opacity, setOpacity] = useState(1)
  const [inspect, setInspect] = useState(false)
  const [open, setOpen] = useState(innerWidth >= 700)
  const dark = useDark()
  const raster = pack.format !== 'pbf' && pack.format !== 'mvt' && !tilejson.value?.vector_layers
  const layers = tilejson.value?.vector_layers ?? []
  const schema = schemaOf(layers.map(one => one.id))
  return <div class="map-place">
    <h1 class="visually-hidden">Map</h1>
    {tilejson.value ? <Canvas pack={pack} of={tilejson.value} raster={raster} look={{dark, hidden, opacity, inspect}} onFeatures={list => { setFeatures(list); if (list.length) { setTab('feature'); setOpen(true) } }} /> :
      <div class="map-canvas">{tilejson.problem ? <ProblemNote problem={tilejson.problem} /> : !pack.tilejson ? <ProblemNote problem={{title: 'This pack is not served', status: 0, code: pack.state, detail: pack.reason ?? '', next: pack.next ?? '', corr_id: '', retryable: true}} /> : null}</div>}
    <aside class={`panel ${open ? 'open' : ''}`} aria-label="About the map">
      <header>
        {packs.length > 1 ? <select aria-label="Pack" value={pack.name} onChange={event => go(href('map', event.currentTarget.value))}>{packs.map(one => <option key={one.name} value={one.name}>{one.name}</option>)}</select> : <h2>{pack.name}</h2>}
        <button type="button" class="quiet fold" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? 'Less' : 'More'}</button>
      </header>
      {open && <>
        <Tabs label="About the map" value={tab} onChange={setTab} options={raster ? [['pack', 'Pack'], ['use', 'Use it']] : [['pack', 'Pack'], ['layers', 'Layers'], ['feature', 'Feature'], ['use', 'Use it']]} />
        <div class="panel-body">
          {tab === 'pack' && <PackFacts pack={pack} of={tilejson.value} schema={raster ? undefined : schema?.name ?? 'not known: layers are shown as they are'} />}
          {tab === 'pack' && raster && <label class="range">Opacity<input type="range" min="0" max="1" step="0.05" value={opacity} onInput={event => setOpacity(Number(event.currentTarget.value))} /></label>}
          {tab === 'layers' && <Layers layers={layers} hidden={hidden} onHidden={setHidden} inspect={inspect || !schema} onInspect={schema ? setInspect : undefined} />}
          {tab === 'feature' && <Features list={features} />}
          {tab === 'use' && (pack.tilejson ? <Use pack={pack} path={pack.tilejson} raster={raster} of={tilejson.value} /> : <p class="calm">It is not served.</p>)}
        </div>
      </>}
    </aside>
  </div>
}

function useDark(): boolean {
  const [dark, setDark] = useState(() => matchMedia('(prefers-color-scheme: dark)').matches)
  useEffect(() => {
    const query = matchMedia('(prefers-color-scheme: dark)')
    const change = () => setDark(query.matches)
    query.addEventListener('change', change)
    return () => query.removeEventListener('change', change)
  }, [])
  return dark
}

function Canvas({pack, of, raster, look, onFeatures}: {pack: Pack; of: TileJSON; raster: boolean; look: Look; onFeatures: (list: MapGeoJSONFeature[]) => void}) {
  const box = useRef<HTMLDivElement>(null)
  const map = useRef<MapView | undefined>(undefined)
  const [failed, setFailed] = useState('')
  const [ready, setReady] = useState(false)
  const style = styleOf(of, raster, look)
  const styleText = JSON.stringify(style)
  useEffect(() => {
    let gone = false
    library().then(lib => {
      if (gone) return
      const given = /^([\d.]+)\/(-?[\d.]+)\/(-?[\d.]+)$/.exec(route.get().query.get('at') ?? '')
      const view = given ? {zoom: +given[1]!, center: [+given[3]!, +given[2]!] as [number, number]} :
        of.center && of.center.length >= 2 ? {center: of.center.slice(0, 2) as [number, number], zoom: of.center[2] ?? of.minzoom} : of.bounds ? {bounds: of.bounds as [number, number, number, number]} : {}
      const shown = new lib.Map({container: box.current!, style, attributionControl: false, fadeDuration: 0, maxZoom: Math.max(of.maxzoom + 4, 18), dragRotate: false, ...view,
        locale: {'Map.Title': `Map of ${pack.name}`}})
      shown.touchZoomRotate.disableRotation()
      shown.on('moveend', () => {
        if (gone || route.get().place !== 'map') return // who has left is not taken back
        const {lng, lat} = shown.getCenter()
        go(href('map', pack.name, {at: `${shown.getZoom().toFixed(2)}/${lat.toFixed(5)}/${lng.toFixed(5)}`}), true)
      })
      shown.on('click', event => {
        const {x, y} = event.point
        onFeatures(shown.queryRenderedFeatures([[x - 5, y - 5], [x + 5, y + 5]]))
      })
      shown.on('idle', () => setReady(true))
      shown.on('error', event => setFailed(String(event.error?.message ?? event.error)))
      map.current = shown
    }).catch(error => setFailed(String(error?.message ?? error)))
    return () => { gone = true; map.current?.remove(); map.current = undefined }
  }, [of])
  useEffect(() => { map.current?.setStyle(style) }, [styleText])
  return <div class="map-canvas" data-ready={ready}>
    <div ref={box} class="map-box" />
    <div class="zoom">
      <button type="button" class="icon-only" aria-label="Zoom in" onClick={() => map.current?.zoomIn()}><Icon name="plus" /></button>
      <button type="button" class="icon-only" aria-label="Zoom out" onClick={() => map.current?.zoomOut()}><Icon name="minus" /></button>
    </div>
    {of.attribution && <p class="attribution">{of.attribution.replaceAll(/<[^>]*>/g, '')}</p>}
    {failed && <p class="map-failed note warn" role="status">Not everything could be drawn: {failed}</p>}
  </div>
}

function PackFacts({pack, of, schema}: {pack: Pack; of?: TileJSON; schema?: string}) {
  return <div class="stack">
    {pack.state !== 'serving' && <div class="note warn"><State signal="warn">{pack.state}</State>{pack.reason && <p>{pack.reason}</p>}{pack.next && <p class="next">{pack.next}</p>}</div>}
    {of?.description && <p>{of.description}</p>}
    <Facts list={[['State', <State signal={pack.state === 'serving' ? 'good' : 'warn'}>{pack.state}</State>], ['File', <span title={pack.file}>{pack.file.split('/').at(-1)}</span>], ['Size', bytes(pack.size)],
      ['Tiles', `${pack.format}, zooms ${pack.minzoom} to ${pack.maxzoom}`], ['Schema', schema], ['Changed', pack.modified && <Ago at={pack.modified} />],
      ['Bounds', pack.bounds && pack.bounds.map(n => n.toFixed(3)).join(', ')], ['Version', pack.version && <Address text={pack.version} what="version" head={8} />],
      ['Bytes', pack.verified ? 'those that edge.expect asks for' : undefined]]} />
  </div>
}

function Layers({layers, hidden, onHidden, inspect, onInspect}: {layers: NonNullable<TileJSON['vector_layers']>; hidden: ReadonlySet<string>; onHidden: (next: ReadonlySet<string>) => void; inspect: boolean; onInspect?: (on: boolean) => void}) {
  const toggle = (id: string) => {
    const next = new Set(hidden)
    if (!next.delete(id)) next.add(id)
    onHidden(next)
  }
  return <div class="stack">
    {onInspect && <Tabs label="Look" value={inspect ? 'inspect' : 'map'} onChange={value => onInspect(value === 'inspect')} options={[['map', 'As a map'], ['inspect', 'As data']]} />}
    <ul class="layers">{layers.map((one, i) => <li key={one.id}>
      <label><input type="checkbox" checked={!hidden.has(one.id)} onChange={() => toggle(one.id)} />{inspect && <svg class="swatch" viewBox="0 0 10 10" aria-hidden="true"><rect width="10" height="10" rx="2" fill={colourOf(i)} /></svg>}<span>{one.id}</span></label>
      <span class="muted small">{one.minzoom !== undefined && `z${one.minzoom}–${one.maxzoom}, `}{count(Object.keys(one.fields ?? {}).length)} fields</span>
    </li>)}</ul>
  </div>
}

const mostFeatures = 20

function Features({list}: {list: MapGeoJSONFeature[]}) {
  if (!list.length) return <p class="calm">Click the map to see what is there.</p>
  return <div class="stack">{list.slice(0, mostFeatures).map((one, i) => <section key={i} class="feature">
    <h3>{one.sourceLayer} <span class="muted small">{one.geometry.type}{one.id !== undefined && `, ${one.id}`}</span></h3>
    <dl>{Object.entries(one.properties).map(([key, value]) => <div key={key}><dt>{key}</dt><dd>{String(value)}</dd></div>)}</dl>
  </section>)}
    {list.length > mostFeatures && <p class="muted">And {list.length - mostFeatures} more.</p>}
  </div>
}

function Use({pack, path, raster, of}: {pack: Pack; path: string; raster: boolean; of?: TileJSON}) {
  const [kind, setKind] = useState<'maplibre' | 'openlayers' | 'qgis'>('maplibre')
  const url = new URL(path, location.href).href
  const tiles = of?.tiles[0] ?? url
  const layer = of?.vector_layers?.[0]?.id ?? 'layer'
  const text = {
    maplibre: raster ? `import {Map} from 'maplibre-gl'

new Map({
  container: 'map',
  style: {
    version: 8,
    sources: {pack: {type: 'raster', url: '${url}', tileSize: 256}},
    layers: [{id: 'pack', type: 'raster', source: 'pack'}],
  },
})` : `import {Map} from 'maplibre-gl'

new Map({
  container: 'map',
  style: {
    version: 8,
    sources: {pack: {type: 'vector', url: '${url}'}},
    layers: [{id: 'pack', type: 'line', source: 'pack', 'source-layer': '${layer}'}],
  },
})`,
    openlayers: raster ? `import TileLayer from 'ol/layer/Tile.js'
import XYZ from 'ol/source/XYZ.js'

new TileLayer({
  source: new XYZ({url: '${tiles}', maxZoom: ${pack.maxzoom}}),
})` : `import MVT from 'ol/format/MVT.js'
import VectorTileLayer from 'ol/layer/VectorTile.js'
import VectorTileSource from 'ol/source/VectorTile.js'

new VectorTileLayer({
  source: new VectorTileSource({format: new MVT(), url: '${tiles}', maxZoom: ${pack.maxzoom}}),
})`,
    qgis: `Layer › Add Layer › ${raster ? 'Add XYZ Layer' : 'Add Vector Tile Layer'} › New connection

URL: ${tiles}
Zooms: ${pack.minzoom} to ${pack.maxzoom}`,
  }[kind]
  return <div class="stack">
    <div><h3>TileJSON</h3><Address text={url} what="TileJSON" head={30} tail={10} /></div>
    <div><h3>This view</h3><Address text={location.href} what="link" head={30} tail={10} /></div>
    <Tabs label="Snippet for" value={kind} onChange={setKind} options={[['maplibre', 'MapLibre'], ['openlayers', 'OpenLayers'], ['qgis', 'QGIS']]} />
    <Snippet text={text} label={`Snippet for ${kind}`} />
    <p class="muted small">Pages of other hosts need <code>http.cors</code>: list the host there.</p>
  </div>
}
