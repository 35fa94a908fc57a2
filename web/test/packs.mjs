// Packs for the tests: a small town in the schema of OpenMapTiles, the same data in a schema that nobody knows, and a raster of the world.
import {execFileSync} from 'node:child_process'
import {writeFileSync} from 'node:fs'
import {crc32, deflateSync, gzipSync} from 'node:zlib'

// A small random generator, so that every run draws the same town.
function random(seed) {
  return () => {
    seed = seed + 0x6d2b79f5 | 0
    let t = Math.imul(seed ^ seed >>> 15, 1 | seed)
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t
    return ((t ^ t >>> 14) >>> 0) / 4294967296
  }
}

const centre = [8.54, 47.37], half = [0.11, 0.075]

/** The town: features in degrees, a list a layer. */
export function town() {
  const next = random(7)
  const at = (x, y) => [centre[0] + x * half[0], centre[1] + y * half[1]] // x and y from -1 to 1
  const layers = {water: [], waterway: [], landcover: [], landuse: [], park: [], building: [], transportation: [], transportation_name: [], place: [], water_name: [], boundary: []}
  const add = (layer, type, rings, properties) => layers[layer].push({type, rings, properties})

  // A lake in the south-west with a wavy shore, and a river out of it.
  const shore = []
  for (let i = 0; i <= 60; i++) {
    const t = i / 60
    shore.push(at(-1.2 + t * 1.15 + .05 * Math.sin(t * 9), -1.2 + .95 * Math.pow(1 - t, .6) + .06 * Math.sin(t * 14)))
  }
  add('water', 3, [[...shore, at(-.05, -1.3), at(-1.3, -1.3), at(-1.3, -.2)]], {class: 'lake'})
  const river = []
  for (let i = 0; i <= 40; i++) river.push([.0 + i / 40 * 1.2 - .5 + .08 * Math.sin(i / 4), -.52 + i / 40 * 1.7 + .05 * Math.cos(i / 5)])
  const bank = river.map(([x, y], i) => at(x + .012 + .006 * Math.sin(i), y)), otherBank = river.map(([x, y]) => at(x - .014, y + .012)).reverse()
  add('water', 3, [[...bank, ...otherBank]], {class: 'river'})
  add('waterway', 2, [river.map(([x, y]) => at(x, y))], {class: 'river', name: 'Lindach'})
  add('water_name', 1, [[at(-.72, -.78)]], {name: 'Seewen', class: 'lake'})

  const blob = (x, y, r, n = 26, flat = .7) => Array.from({length: n}, (_, i) => {
    const a = i / n * 2 * Math.PI, s = r * (.8 + .25 * Math.sin(i * 1.7) + .15 * next())
    return at(x + Math.cos(a) * s, y + Math.sin(a) * s * flat)
  })
  for (const [x, y, r, kind] of [[.62, .66, .34, 'wood'], [-.75, .62, .36, 'wood'], [.82, -.6, .26, 'wood'], [.05, .95, .2, 'grass'], [-.25, .86, .18, 'farmland'], [.5, -.9, .22, 'farmland']]) add('landcover', 3, [blob(x, y, r)], {class: kind})
  for (const [x, y, r] of [[.22, .18, .07], [-.2, -.05, .06], [.42, -.3, .09], [-.42, .3, .08]]) add('park', 3, [blob(x, y, r, 18)], {class: 'public_park'})
  add('landuse', 3, [blob(.12, .02, .62, 40, .85)], {class: 'residential'})

  const inLake = (x, y) => x < -.12 && y < -1.2 + .95 * Math.pow(1 - Math.max(0, (x + 1.2) / 1.15), .6) + .08
  const nearRiver = (x, y) => river.some(([rx, ry]) => Math.abs(rx - x) < .03 && Math.abs(ry - y) < .035)
  const turn = (x, y, a) => [x * Math.cos(a) - y * Math.sin(a), x * Math.sin(a) + y * Math.cos(a)]
  const names = ['Lindenweg', 'Bahnhofstrasse', 'Marktgasse', 'Seestrasse', 'Schulhausstrasse', 'Rosengasse', 'Mühleweg', 'Kirchgasse', 'Bergstrasse', 'Wiesenweg', 'Hafenstrasse', 'Ringstrasse']
  // Streets: a bent grid around the centre, thinner outside.
  const bend = (x, y) => { const [a, b] = turn(x, y, .32 + .25 * x); return [a + .05 * Math.sin(3 * b) + .12, b * .92 + .04 * Math.sin(4 * a)] }
  for (let i = -9; i <= 9; i++) for (const across of [false, true]) {
    const line = []
    for (let j = -40; j <= 40; j++) {
      const [x, y] = across ? bend(j / 40 * .62, i / 9 * .56) : bend(i / 9 * .6, j / 40 * .58)
      if (inLake(x, y)) { if (line.length > 3) break; line.length = 0; continue }
      line.push(at(x, y))
    }
    if (line.length < 6) continue
    const main = i % 4 === 0
    add('transportation', 2, [line], {class: main ? i === 0 ? 'primary' : 'secondary' : i % 2 ? 'minor' : 'tertiary'})
    add('transportation_name', 2, [line], {class: main ? 'primary' : 'minor', name: names[Math.abs(i * 2 + (across ? 1 : 0)) % names.length]})
  }
  const curve = (points, cls, name) => {
    const line = []
    for (let i = 0; i < points.length - 1; i++) for (let t = 0; t < 1; t += .05) {
      const [p0, p1, p2, p3] = [points[Math.max(0, i - 1)], points[i], points[i + 1], points[Math.min(points.length - 1, i + 2)]]
      const spline = k => .5 * (2 * p1[k] + (p2[k] - p0[k]) * t + (2 * p0[k] - 5 * p1[k] + 4 * p2[k] - p3[k]) * t * t + (3 * p1[k] - p0[k] - 3 * p2[k] + p3[k]) * t * t * t)
      line.push(at(spline(0), spline(1)))
    }
    line.push(at(...points.at(-1)))
    add('transportation', 2, [line], {class: cls})
    if (name) add('transportation_name', 2, [line], {class: cls, name})
  }
  curve([[-1.2, .35], [-.6, .42], [-.2, .68], [.35, .72], [.75, .4], [.86, -.1], [.7, -.55], [.9, -1.2]], 'motorway', 'A7')
  curve([[-1.2, .05], [-.55, .1], [-.1, .08], [.3, .1], [.7, .3], [1.2, .42]], 'primary', 'Landstrasse')
  curve([[.1, -1.2], [.18, -.6], [.12, 0], [.2, .5], [.05, 1.2]], 'trunk', 'Nordring')
  curve([[-1.2, .2], [-.5, .24], [0, .16], [.5, -.08], [1.2, -.3]], 'rail')
  for (let i = 0; i < 9; i++) curve([[.4 + .1 * next(), .4 + .4 * next()], [.55 + .2 * next(), .55 + .3 * next()], [.7 + .25 * next(), .5 + .4 * next()]], 'path')

  // Houses along the grid.
  for (let i = -26; i <= 26; i++) for (let j = -24; j <= 24; j++) {
    if (next() < .28) continue
    const [x, y] = bend((i + .5 + .2 * next()) / 26 * .58, (j + .5 + .2 * next()) / 24 * .53)
    if (inLake(x - .02, y - .02) || nearRiver(x, y)) continue
    const w = .0065 + .006 * next(), h = .006 + .008 * next(), a = .32 + .25 * x
    const corner = (dx, dy) => { const [u, v] = turn(dx * w, dy * h, a); return at(x + u, y + v * 1.2) }
    const cut = next() < .3
    add('building', 3, [cut ? [corner(-1, -1), corner(1, -1), corner(1, 0), corner(0, 0), corner(0, 1), corner(-1, 1)] : [corner(-1, -1), corner(1, -1), corner(1, 1), corner(-1, 1)]], {render_height: 5 + Math.round(next() * 20)})
  }
  for (const [x, y, name, cls] of [[.1, .02, 'Lindach', 'city'], [-.5, .33, 'Altdorf', 'town'], [.62, .3, 'Neuwil', 'village'], [.35, -.42, 'Hafen', 'suburb'], [.15, .55, 'Oberried', 'suburb'], [-.1, .3, 'Bahnhof', 'suburb'], [.85, .8, 'Waldegg', 'village'], [-.8, .85, 'Forst', 'village']]) add('place', 1, [[at(x, y)]], {name, class: cls})
  add('boundary', 2, [[at(-1.2, .75), at(-.4, .9), at(.3, .84), at(.9, .95), at(1.2, .9)]], {admin_level: 4})
  return layers
}

const minimum = {building: 13, transportation_name: 12, water_name: 9, park: 10, landuse: 9}
const fields = {name: 'String', class: 'String', render_height: 'Number', admin_level: 'Number'}

// --- Mapbox vector tiles ---

const varint = n => { const out = []; while (n > 127) { out.push(n % 128 | 128); n = Math.floor(n / 128) } return [...out, n] }
const tag = (field, type) => varint(field << 3 | type)
const bytesField = (field, bytes) => Buffer.concat([Buffer.from([...tag(field, 2), ...varint(bytes.length)]), bytes])
const zigzag = n => n < 0 ? -2 * n - 1 : 2 * n

function geometry(type, rings) {
  const out = []
  let x = 0, y = 0
  const move = ([px, py]) => { out.push(zigzag(px - x), zigzag(py - y)); x = px; y = py }
  for (const ring of rings) {
    if (type === 1) { out.push(1 << 3 | 1); move(ring[0]); continue }
    out.push(1 << 3 | 1)
    move(ring[0])
    out.push(ring.length - 1 << 3 | 2)
    for (const point of ring.slice(1)) move(point)
    if (type === 3) out.push(15)
  }
  return out
}

function encodeLayer(name, features) {
  const keys = [], values = []
  const find = (list, one) => { const found = list.indexOf(one); return found < 0 ? list.push(one) - 1 : found }
  const body = features.map((one, i) => {
    const tags = Object.entries(one.properties).flatMap(([key, value]) => [find(keys, key), find(values, value)])
    return bytesField(2, Buffer.concat([Buffer.from([...tag(1, 0), ...varint(i + 1)]), bytesField(2, Buffer.from(tags.flatMap(varint))), Buffer.from([...tag(3, 0), one.type]), bytesField(4, Buffer.from(geometry(one.type, one.rings).flatMap(varint)))]))
  })
  return bytesField(3, Buffer.concat([Buffer.from([...tag(15, 0), 2]), bytesField(1, Buffer.from(name)), ...body, ...keys.map(key => bytesField(3, Buffer.from(key))),
    ...values.map(value => bytesField(4, typeof value === 'string' ? bytesField(1, Buffer.from(value)) : Buffer.from([...tag(5, 0), ...varint(value)]))), Buffer.from([...tag(5, 0), ...varint(4096)])]))
}

// --- clipping to a tile with a margin ---

const margin = 160
function clipRing(ring) {
  for (const [k, limit, sign] of [[0, -margin, 1], [0, 4096 + margin, -1], [1, -margin, 1], [1, 4096 + margin, -1]]) {
    const inside = p => (p[k] - limit) * sign >= 0, out = []
    ring.forEach((p, i) => {
      const q = ring[(i + ring.length - 1) % ring.length]
      if (inside(p) !== inside(q)) { const t = (limit - q[k]) / (p[k] - q[k]); out.push([q[0] + (p[0] - q[0]) * t, q[1] + (p[1] - q[1]) * t]) }
      if (inside(p)) out.push(p)
    })
    ring = out
    if (!ring.length) break
  }
  return ring.length > 2 ? [ring] : []
}

function clipLine(line) {
  const parts = []
  let part = []
  for (let i = 1; i < line.length; i++) {
    const [[x0, y0], [x1, y1]] = [line[i - 1], line[i]]
    let t0 = 0, t1 = 1, keep = true
    for (const [p, q] of [[x0 - x1, x0 + margin], [x1 - x0, 4096 + margin - x0], [y0 - y1, y0 + margin], [y1 - y0, 4096 + margin - y0]]) {
      if (p === 0) { if (q < 0) keep = false } else if (p < 0) t0 = Math.max(t0, q / p)
      else t1 = Math.min(t1, q / p)
    }
    if (!keep || t0 > t1) { if (part.length > 1) parts.push(part); part = []; continue }
    const point = t => [x0 + (x1 - x0) * t, y0 + (y1 - y0) * t]
    if (!part.length) part.push(point(t0))
    part.push(point(t1))
    if (t1 < 1) { parts.push(part); part = [] }
  }
  if (part.length > 1) parts.push(part)
  return parts
}

const project = ([lng, lat], z) => { const s = 2 ** z, r = lat * Math.PI / 180; return [(lng + 180) / 360 * s, (1 - Math.log(Math.tan(r) + 1 / Math.cos(r)) / Math.PI) / 2 * s] }

function vectorTile(layers, z, x, y, rename = name => name) {
  const parts = []
  for (const [name, features] of Object.entries(layers)) {
    if (z < (minimum[name] ?? 0)) continue
    const kept = []
    for (const one of features) {
      if (outside(one, z, x, y)) continue
      const local = one.rings.map(ring => ring.map(p => { const [px, py] = project(p, z); return [(px - x) * 4096, (py - y) * 4096] }))
      let rings = one.type === 1 ? local.filter(([[px, py]]) => px >= 0 && py >= 0 && px < 4096 && py < 4096) : local.flatMap(one.type === 2 ? clipLine : clipRing)
      rings = rings.map(ring => ring.map(p => p.map(Math.round)).filter((p, i, all) => !i || p[0] !== all[i - 1][0] || p[1] !== all[i - 1][1])).filter(ring => ring.length >= one.type)
      if (one.type === 3) rings = rings.map(ring => area(ring) < 0 ? ring.reverse() : ring)
      if (rings.length) kept.push({...one, rings})
    }
    if (kept.length) parts.push(encodeLayer(rename(name), kept))
  }
  return parts.length ? gzipSync(Buffer.concat(parts)) : undefined
}
/** Most features are in few tiles: their bounds, at zoom 0, say so before anything is projected. */
function outside(one, z, x, y) {
  one.bounds ??= one.rings.flat().map(p => project(p, 0)).reduce(([a, b, c, d], [u, v]) => [Math.min(a, u), Math.min(b, v), Math.max(c, u), Math.max(d, v)], [1, 1, 0, 0])
  const s = 2 ** z, [a, b, c, d] = one.bounds
  return c * s < x - .05 || d * s < y - .05 || a * s > x + 1.05 || b * s > y + 1.05
}

const area = ring => ring.reduce((sum, [x, y], i) => { const [u, v] = ring[(i + 1) % ring.length]; return sum + x * v - u * y }, 0)

// --- PMTiles, version 3, with all entries in the root directory ---

function tileID(z, x, y) {
  let id = (4 ** z - 1) / 3
  for (let s = 2 ** (z - 1); s >= 1; s /= 2) {
    const rx = (x & s) > 0 ? 1 : 0, ry = (y & s) > 0 ? 1 : 0
    id += s * s * (3 * rx ^ ry)
    if (!ry) { if (rx) { x = s - 1 - (x & s - 1); y = s - 1 - (y & s - 1) } else { x &= s - 1; y &= s - 1 } [x, y] = [y, x] } else { x &= s - 1; y &= s - 1 }
  }
  return id
}

function pmtiles(tiles, {metadata, type, compression, minzoom, maxzoom, bounds, center}) {
  const sorted = tiles.map(one => ({id: tileID(one.z, one.x, one.y), data: one.data})).sort((a, b) => a.id - b.id)
  let offset = 0, last = 0
  const columns = [[], [], [], []]
  for (const one of sorted) {
    columns[0].push(...varint(one.id - last)); columns[1].push(1); columns[2].push(...varint(one.data.length)); columns[3].push(...varint(offset + 1))
    last = one.id
    offset += one.data.length
  }
  const directory = Buffer.from([...varint(sorted.length), ...columns.flat()]), meta = Buffer.from(JSON.stringify(metadata)), header = Buffer.alloc(127)
  header.write('PMTiles', 0); header[7] = 3
  const put = (at, n) => header.writeBigUInt64LE(BigInt(n), at)
  put(8, 127); put(16, directory.length); put(24, 127 + directory.length); put(32, meta.length); put(40, 127 + directory.length + meta.length); put(48, 0)
  put(56, 127 + directory.length + meta.length); put(64, offset); put(72, sorted.length); put(80, sorted.length); put(88, sorted.length)
  header[96] = 1; header[97] = 1; header[98] = compression; header[99] = type; header[100] = minzoom; header[101] = maxzoom
  bounds.forEach((n, i) => header.writeInt32LE(Math.round(n * 1e7), 102 + 4 * i))
  header[118] = center[2]
  header.writeInt32LE(Math.round(center[0] * 1e7), 119); header.writeInt32LE(Math.round(center[1] * 1e7), 123)
  return Buffer.concat([header, directory, meta, ...sorted.map(one => one.data)])
}

/** The tiles of the town, and what is said of them. */
function townTiles(rename) {
  const layers = town(), bounds = [centre[0] - half[0], centre[1] - half[1], centre[0] + half[0], centre[1] + half[1]], tiles = []
  for (let z = 8; z <= 14; z++) {
    const [x0, y1] = project([bounds[0], bounds[1]], z).map(Math.floor), [x1, y0] = project([bounds[2], bounds[3]], z).map(Math.floor)
    for (let x = x0; x <= x1; x++) for (let y = y0; y <= y1; y++) { const data = vectorTile(layers, z, x, y, rename); if (data) tiles.push({z, x, y, data}) }
  }
  const vector_layers = Object.keys(layers).map(id => ({id: rename(id), minzoom: Math.max(8, minimum[id] ?? 0), maxzoom: 14, fields: Object.fromEntries(Object.keys(layers[id][0]?.properties ?? {}).map(key => [key, fields[key]]))}))
  return {tiles, vector_layers, bounds, center: [centre[0] + .008, centre[1] + .004, 14]}
}

export function writeVector(path, {rename = name => name, name = 'Lindach', attribution = '© <b>the tests</b>'} = {}) {
  const {tiles, vector_layers, bounds, center} = townTiles(rename)
  writeFileSync(path, pmtiles(tiles, {metadata: {name, attribution, description: 'A town that does not exist.', vector_layers}, type: 1, compression: 2, minzoom: 8, maxzoom: 14, bounds, center}))
}

/** The same town as MBTiles, which is a file of SQLite: Python writes one, and puts it in its place when it is whole. */
export function writeMBTiles(path) {
  const {tiles, vector_layers, bounds, center} = townTiles(name => name)
  const metadata = {name: 'Valley', format: 'pbf', minzoom: '8', maxzoom: '14', bounds: bounds.join(','), center: center.join(','), attribution: 'the tests', json: JSON.stringify({vector_layers})}
  execFileSync('python3', ['-c', `
import base64, json, os, sqlite3, sys
given = json.load(sys.stdin)
file = sqlite3.connect(sys.argv[1] + '.part')
file.execute('CREATE TABLE metadata (name text, value text)')
file.execute('CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob)')
file.execute('CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row)')
file.executemany('INSERT INTO metadata VALUES (?, ?)', given['metadata'].items())
file.executemany('INSERT INTO tiles VALUES (?, ?, ?, ?)', [(z, x, y, base64.b64decode(data)) for z, x, y, data in given['tiles']])
file.commit()
file.close()
os.rename(sys.argv[1] + '.part', sys.argv[1])
`, path], {input: JSON.stringify({metadata, tiles: tiles.map(one => [one.z, one.x, 2 ** one.z - 1 - one.y, one.data.toString('base64')])})})
}

/** A picture of 256 by 256. */
function png(colourAt) {
  const raw = Buffer.alloc(256 * 769)
  for (let y = 0; y < 256; y++) for (let x = 0; x < 256; x++) Buffer.from(colourAt(x, y)).copy(raw, y * 769 + 1 + x * 3)
  const chunk = (kind, body) => { const text = Buffer.concat([Buffer.from(kind), body]), out = Buffer.alloc(body.length + 12); out.writeUInt32BE(body.length); text.copy(out, 4); out.writeUInt32BE(crc32 ? crc32(text) : crc(text), body.length + 8); return out }
  const head = Buffer.alloc(13)
  head.writeUInt32BE(256, 0); head.writeUInt32BE(256, 4); head[8] = 8; head[9] = 2
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), chunk('IHDR', head), chunk('IDAT', deflateSync(raw)), chunk('IEND', Buffer.alloc(0))])
}

const table = Array.from({length: 256}, (_, n) => { for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ n >>> 1 : n >>> 1; return n >>> 0 })
const crc = bytes => (bytes.reduce((c, b) => table[(c ^ b) & 255] ^ c >>> 8, 0xffffffff) ^ 0xffffffff) >>> 0

export function writeRaster(path) {
  const tiles = []
  const height = (u, v) => .5 + .22 * Math.sin(u * 9 + 2 * Math.sin(v * 7)) + .2 * Math.cos(v * 11 + 1.5 * Math.sin(u * 13)) + .08 * Math.sin(u * 41) * Math.cos(v * 37)
  for (let z = 0; z <= 2; z++) for (let x = 0; x < 2 ** z; x++) for (let y = 0; y < 2 ** z; y++) {
    tiles.push({z, x, y, data: png((px, py) => {
      const u = (x + px / 256) / 2 ** z, v = (y + py / 256) / 2 ** z, h = height(u, v), shade = .75 + 6 * (h - height(u + .004, v + .004))
      const [r, g, b] = h < .45 ? [70, 120 + 90 * h, 150 + 100 * h] : h < .7 ? [150 + 120 * (h - .45), 175, 120] : [205, 198, 180]
      return [r, g, b].map(c => Math.max(0, Math.min(255, c * (h < .45 ? 1 : shade))))
    })})
  }
  writeFileSync(path, pmtiles(tiles, {metadata: {name: 'Heights', description: 'Hills and seas of a world that does not exist.'}, type: 2, compression: 1, minzoom: 0, maxzoom: 2, bounds: [-180, -85, 180, 85], center: [10, 20, 2]}))
}
