// Which layers of a vector pack are water, roads, names: for the three schemas that most packs have.

type Filter = unknown[]
type Of = [layer: string, filter?: Filter]

export interface Schema {
  name: string
  land: Of[]; green: Of[]; built: Of[]; water: Of[]; waterway: Of[]; building: Of[]
  path: Of[]; minor: Of[]; major: Of[]; motorway: Of[]; rail: Of[]; boundary: Of[]
  roadLabel: Of[]; waterLabel: Of[]; country: Of[]; city: Of[]; town: Of[]; village: Of[]
  text: unknown // of a label
}

const is = (key: string, ...values: string[]): Filter => ['match', ['get', key], values, true, false]
const both = (...all: Filter[]): Filter => ['all', ...all]
const below = (key: string, n: number): Filter => ['<=', ['to-number', ['get', key], 99], n]

const green = ['park', 'forest', 'wood', 'grass', 'grassland', 'meadow', 'scrub', 'nature_reserve', 'national_park', 'garden', 'cemetery', 'orchard', 'vineyard', 'golf_course', 'recreation_ground', 'village_green', 'heath', 'farmland', 'allotments', 'pitch', 'protected_area', 'zoo', 'wetland']
const built = ['residential', 'commercial', 'industrial', 'retail', 'school', 'university', 'hospital', 'suburb', 'neighbourhood', 'railway', 'pedestrian', 'college', 'urban_area']

const openMapTiles: Schema = {
  name: 'OpenMapTiles',
  land: [], green: [['landcover', is('class', ...green)], ['park'], ['landuse', is('class', ...green)]], built: [['landuse', is('class', ...built)]],
  water: [['water']], waterway: [['waterway']], building: [['building']],
  path: [['transportation', is('class', 'path', 'track')]], minor: [['transportation', is('class', 'minor', 'service', 'tertiary', 'street', 'busway')]],
  major: [['transportation', is('class', 'primary', 'secondary', 'trunk')]], motorway: [['transportation', is('class', 'motorway')]],
  rail: [['transportation', is('class', 'rail', 'transit')]], boundary: [['boundary', below('admin_level', 4)]],
  roadLabel: [['transportation_name']], waterLabel: [['water_name']],
  country: [['place', is('class', 'country')]], city: [['place', is('class', 'city')]], town: [['place', is('class', 'town')]], village: [['place', is('class', 'village', 'suburb', 'hamlet', 'neighbourhood', 'quarter')]],
  text: ['coalesce', ['get', 'name:latin'], ['get', 'name']],
}

const protomaps: Schema = {
  name: 'Protomaps',
  land: [['earth']], green: [['landuse', is('kind', ...green)], ['landcover', is('kind', ...green)], ['natural', is('kind', ...green)]], built: [['landuse', is('kind', ...built)]],
  water: [['water', is('kind', 'water', 'ocean', 'lake', 'sea', 'bay', 'basin', 'reservoir', 'dock', 'swimming_pool', 'playa', 'other')]], waterway: [['water', is('kind', 'river', 'stream', 'canal', 'ditch', 'drain')]], building: [['buildings']],
  path: [['roads', is('kind', 'path', 'other')]], minor: [['roads', is('kind', 'minor_road')]], major: [['roads', is('kind', 'major_road', 'medium_road')]], motorway: [['roads', is('kind', 'highway')]],
  rail: [['roads', is('kind', 'rail')], ['transit', is('kind', 'rail')]], boundary: [['boundaries', is('kind', 'country', 'region')]],
  roadLabel: [['roads', is('kind', 'highway', 'major_road', 'medium_road', 'minor_road')]], waterLabel: [['water', ['==', ['geometry-type'], 'Point']]],
  country: [['places', is('kind', 'country')]], city: [['places', both(is('kind', 'locality'), is('kind_detail', 'city'))]], town: [['places', both(is('kind', 'locality'), is('kind_detail', 'town'))]],
  village: [['places', both(is('kind', 'locality', 'neighbourhood'), ['!', is('kind_detail', 'city', 'town')])]],
  text: ['coalesce', ['get', 'name:en'], ['get', 'name']],
}

const shortbread: Schema = {
  name: 'Shortbread',
  land: [], green: [['land', is('kind', ...green)], ['sites', is('kind', ...green)]], built: [['land', is('kind', ...built)], ['sites', is('kind', ...built)]],
  water: [['ocean'], ['water_polygons']], waterway: [['water_lines']], building: [['buildings']],
  path: [['streets', is('kind', 'path', 'footway', 'cycleway', 'steps', 'track', 'bridleway')]], minor: [['streets', is('kind', 'tertiary', 'unclassified', 'residential', 'service', 'living_street', 'pedestrian', 'busway')]],
  major: [['streets', is('kind', 'trunk', 'primary', 'secondary')]], motorway: [['streets', is('kind', 'motorway')]],
  rail: [['streets', is('kind', 'rail', 'light_rail', 'tram', 'subway', 'narrow_gauge', 'monorail')]], boundary: [['boundaries', below('admin_level', 4)]],
  roadLabel: [['street_labels']], waterLabel: [['water_polygons_labels']],
  country: [['boundary_labels', below('admin_level', 2)]], city: [['place_labels', is('kind', 'city', 'capital', 'state_capital')]], town: [['place_labels', is('kind', 'town')]], village: [['place_labels', is('kind', 'village', 'suburb', 'quarter', 'neighbourhood', 'hamlet')]],
  text: ['coalesce', ['get', 'name_en'], ['get', 'name']],
}

/** The schema of a pack by the names of its layers; undefined if it is none of the three. */
export function schemaOf(layers: string[]): Schema | undefined {
  const has = (...names: string[]) => names.filter(name => layers.includes(name)).length >= 2
  if (has('transportation', 'place', 'landcover', 'transportation_name', 'waterway')) return openMapTiles
  if (has('streets', 'place_labels', 'water_polygons', 'street_labels')) return shortbread
  if (has('roads', 'earth', 'places', 'boundaries', 'landuse')) return protomaps
  return undefined
}
