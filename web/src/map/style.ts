// The look of a map: one set of layers, two sets of colours. Labels use the fonts of the browser.
import type {LayerSpecification, StyleSpecification} from 'maplibre-gl'
import type {TileJSON} from '../node/types'
import {schemaOf, type Schema} from './schema'

const light = {
  land: '#f3f2ed', green: '#d9e6cd', built: '#efece5', water: '#a9cde0', building: '#ddd6ca', casing: '#d8d2c6', path: '#cfc7b8', minor: '#ffffff', major: '#fff1cf', motorway: '#f8cf8e',
  rail: '#bdb8b0', boundary: '#9a90a5', label: '#37414d', soft: '#6a7480', halo: '#fbfaf7', waterLabel: '#35708f',
}
const dark: typeof light = {
  land: '#13181f', green: '#17251f', built: '#181e26', water: '#0f2c3f', building: '#232c37', casing: '#10151b', path: '#2a323d', minor: '#2a333e', major: '#39444f', motorway: '#5a5340',
  rail: '#333c47', boundary: '#5d5670', label: '#cfd6df', soft: '#8b97a5', halo: '#12171d', waterLabel: '#6fa6c6',
}

// For a layer that no schema knows: a colour by its place in the list.
const palette = ['#0f7d7b', '#b5533c', '#5b63c4', '#8a6d1d', '#a13d7c', '#3b7d3c', '#3577a8', '#8a5a2b', '#6b6f76', '#7a4fb3']
export const colourOf = (index: number) => palette[index % palette.length]!

export interface Look { dark: boolean; hidden: ReadonlySet<string>; opacity: number; inspect: boolean }

const source = 'pack'

/** The tiles of a pack at this node: the address by which the page was opened, whatever the TileJSON says. */
export const tilesOf = (of: TileJSON) => of.tiles.map(url => url.replace(/^https?:\/\/[^/]+/, location.origin))

export function styleOf(of: TileJSON, raster: boolean, look: Look): StyleSpecification {
  const colours = look.dark ? dark : light
  const bounds = of.bounds?.length === 4 ? {bounds: of.bounds as [number, number, number, number]} : {}
  const common = {tiles: tilesOf(of), minzoom: of.minzoom, maxzoom: of.maxzoom, ...bounds}
  if (raster) {
    return {version: 8, sources: {[source]: {type: 'raster', tileSize: 256, ...common}}, layers: [
      {id: 'background', type: 'background', paint: {'background-color': look.dark ? '#0e1116' : '#eef0f4'}},
      {id: 'raster', type: 'raster', source, paint: {'raster-opacity': look.opacity, 'raster-fade-duration': 0}},
    ]}
  }
  const names = (of.vector_layers ?? []).map(one => one.id)
  const schema = look.inspect ? undefined : schemaOf(names)
  const layers = schema ? drawn(schema, colours) : inspected(names, look.dark)
  const shown = layers.filter(one => !('source-layer' in one) || names.includes(one['source-layer'] as string) && !look.hidden.has(one['source-layer'] as string))
  return {
    version: 8, sources: {[source]: {type: 'vector', ...common}},
    layers: [{id: 'background', type: 'background', paint: {'background-color': schema && schema.land.length === 0 || !schema ? colours.land : colours.water}}, ...shown],
  }
}

const width = (thin: number, wide: number) => ['interpolate', ['exponential', 1.6], ['zoom'], 8, thin, 18, wide]

function drawn(schema: Schema, colours: typeof light): LayerSpecification[] {
  const layers: unknown[] = []
  const add = (role: keyof Schema, type: string, paint: object, more: {layout?: object; minzoom?: number; geometry?: string} = {}, suffix = '') => {
    for (const [i, [layer, filter]] of (schema[role] as [string, unknown[]?][]).entries()) {
      const filters = [filter, more.geometry && ['==', ['geometry-type'], more.geometry]].filter(Boolean)
      layers.push({id: `${role}${suffix}-${i}`, type, source, 'source-layer': layer, paint, ...(more.layout ? {layout: more.layout} : {}), ...(more.minzoom ? {minzoom: more.minzoom} : {}),
        ...(filters.length ? {filter: filters.length > 1 ? ['all', ...filters] : filters[0]} : {})})
    }
  }
  const polygon = {geometry: 'Polygon'}
  add('land', 'fill', {'fill-color': colours.land}, polygon)
  add('built', 'fill', {'fill-color': colours.built}, polygon)
  add('green', 'fill', {'fill-color': colours.green, 'fill-opacity': .9}, polygon)
  add('water', 'fill', {'fill-color': colours.water}, polygon)
  const round = {layout: {'line-cap': 'round', 'line-join': 'round'}}
  add('waterway', 'line', {'line-color': colours.water, 'line-width': width(.5, 10)}, {...round, geometry: 'LineString'})
  add('building', 'fill', {'fill-color': colours.building, 'fill-opacity': ['interpolate', ['linear'], ['zoom'], 13, 0, 14.5, 1]}, {minzoom: 13, ...polygon})
  add('path', 'line', {'line-color': colours.path, 'line-width': width(.2, 4), 'line-dasharray': [2, 1.5]}, {minzoom: 13, geometry: 'LineString'})
  add('rail', 'line', {'line-color': colours.rail, 'line-width': width(.4, 4)}, {geometry: 'LineString', minzoom: 9})
  const roads: [keyof Schema, string, number, number, number][] = [['minor', colours.minor, .3, 20, 11], ['major', colours.major, .8, 28, 6], ['motorway', colours.motorway, 1.2, 32, 4]]
  for (const [role, , thin, wide, from] of roads) add(role, 'line', {'line-color': colours.casing, 'line-width': width(thin + .8, wide + 3)}, {...round, minzoom: from, geometry: 'LineString'}, '-casing')
  for (const [role, colour, thin, wide, from] of roads) add(role, 'line', {'line-color': colour, 'line-width': width(thin, wide)}, {...round, minzoom: from, geometry: 'LineString'})
  add('boundary', 'line', {'line-color': colours.boundary, 'line-width': width(.8, 3), 'line-dasharray': [3, 2]}, {geometry: 'LineString'})
  const label = (size: unknown, weight = 'Inter', more: object = {}) => ({layout: {'text-field': schema.text, 'text-font': [weight], 'text-size': size, 'text-max-width': 8, ...more}})
  const paint = (colour: string) => ({'text-color': colour, 'text-halo-color': colours.halo, 'text-halo-width': 1.4})
  add('roadLabel', 'symbol', paint(colours.soft), {minzoom: 13, geometry: 'LineString', ...label(['interpolate', ['linear'], ['zoom'], 13, 10, 18, 14], 'Inter', {'symbol-placement': 'line'})})
  add('waterLabel', 'symbol', paint(colours.waterLabel), label(12, 'Inter', {'text-letter-spacing': .05}))
  add('village', 'symbol', paint(colours.soft), {minzoom: 10, ...label(['interpolate', ['linear'], ['zoom'], 10, 10, 16, 14])})
  add('town', 'symbol', paint(colours.label), {minzoom: 7, ...label(['interpolate', ['linear'], ['zoom'], 7, 11, 14, 16])})
  add('city', 'symbol', paint(colours.label), label(['interpolate', ['linear'], ['zoom'], 4, 12, 14, 22], 'Inter'))
  add('country', 'symbol', paint(colours.label), label(['interpolate', ['linear'], ['zoom'], 2, 11, 7, 18], 'Inter', {'text-transform': 'uppercase', 'text-letter-spacing': .1}))
  return layers as LayerSpecification[]
}

/** Every layer, in a colour of its own: points, lines and areas. */
function inspected(names: string[], isDark: boolean): LayerSpecification[] {
  return names.flatMap((name, i) => {
    const colour = colourOf(i), of = (geometry: string) => ['==', ['geometry-type'], geometry]
    return [
      {id: `${name}-area`, type: 'fill', source, 'source-layer': name, filter: of('Polygon'), paint: {'fill-color': colour, 'fill-opacity': .18, 'fill-outline-color': colour}},
      {id: `${name}-line`, type: 'line', source, 'source-layer': name, filter: of('LineString'), paint: {'line-color': colour, 'line-width': 1.4, 'line-opacity': .9}},
      {id: `${name}-point`, type: 'circle', source, 'source-layer': name, filter: of('Point'), paint: {'circle-color': colour, 'circle-radius': 4, 'circle-stroke-width': 1, 'circle-stroke-color': isDark ? '#0e1116' : '#ffffff'}},
    ] as unknown as LayerSpecification[]
  })
}
