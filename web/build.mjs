// Builds the page into internal/page/dist, or, with --check, fails if what is there is
// not what the sources give. Every name but index.html has a hash or a version in it.
import {build} from 'esbuild'
import {createHash} from 'node:crypto'
import {mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync} from 'node:fs'
import {dirname, join, relative} from 'node:path'
import {fileURLToPath} from 'node:url'
import {gzipSync} from 'node:zlib'
import subset from 'subset-font'

const here = dirname(fileURLToPath(import.meta.url))
const dist = process.env.PAGE_DIST ?? join(here, '../internal/page/dist')
const modules = join(here, 'node_modules')
const files = new Map() // path below dist -> bytes

// The font: Latin letters, numbers and the signs that the page uses; weights from 400 to 600. Without kerning, which is a fifth of it and not seen at these sizes.
let letters = '\u00a0·–—…×→←↑↓≤≥≈µ°‘’“”'
for (let i = 0x20; i < 0x7f; i++) letters += String.fromCharCode(i)
for (let i = 0xc0; i < 0x100; i++) letters += String.fromCharCode(i)
const inter = readFileSync(join(modules, '@fontsource-variable/inter/files/inter-latin-wght-normal.woff2'))
const font = await subset(inter, letters, {targetFormat: 'woff2', keepFeatures: ['tnum'], variationAxes: {wght: {min: 400, max: 600}}})
const fontName = named('inter', font, 'woff2')
files.set(fontName, font)

// The map library stays as it is published: its worker finds its other half by a relative path.
const mapVersion = JSON.parse(readFileSync(join(modules, 'maplibre-gl/package.json'))).version
const mapFolder = `maplibre-gl-${mapVersion}`
for (const one of ['maplibre-gl.mjs', 'maplibre-gl-shared.mjs', 'maplibre-gl-worker.mjs']) {
  const text = readFileSync(join(modules, 'maplibre-gl/dist', one), 'utf8').replace(/\n\/\/# sourceMappingURL=.*\n?$/, '\n')
  files.set(`${mapFolder}/${one}`, Buffer.from(text))
}

const result = await build({
  absWorkingDir: here,
  entryPoints: {app: 'src/main.tsx', hash: 'src/hash.worker.ts'},
  outdir: dist,
  bundle: true, splitting: true, format: 'esm', target: 'es2022', minify: true, write: false, metafile: true,
  entryNames: '[name]-[hash]', chunkNames: '[name]-[hash]', assetNames: '[name]-[hash]',
  jsx: 'automatic', jsxImportSource: 'preact', legalComments: 'none', 
  external: [`/ui/${mapFolder}/*`, `/ui/${fontName}`],
  define: {MAP_LIBRARY: JSON.stringify(`/ui/${mapFolder}/maplibre-gl.mjs`), MAP_WORKER: JSON.stringify(`/ui/${mapFolder}/maplibre-gl-worker.mjs`), HASH_WORKER: '"HASH_WORKER_PATH"'},
})
// The name of the worker is known only now, and is the same length of change for everybody: it is put in its place, and the names with it.
const outputs = result.outputFiles.map(one => ({path: relative(dist, one.path), text: one.text}))
const worker = outputs.find(one => one.path.startsWith('hash-')).path
for (const one of outputs) one.text = one.text.replaceAll('HASH_WORKER_PATH', `/ui/${worker}`)
for (const one of outputs) files.set(one.path, Buffer.from(one.text))
const script = outputs.find(one => /^app-.*\.js$/.test(one.path)).path

// Style sheets, in the order in which they build on each other.
const css = await build({absWorkingDir: here, entryPoints: ['src/style/page.css'], bundle: true, minify: true, write: false, external: ['*.woff2'], target: 'es2022'})
const style = css.outputFiles[0].text.replaceAll('FONT.woff2', fontName)
const styleName = named('page', Buffer.from(style), 'css')
files.set(styleName, Buffer.from(style))
const icon = readFileSync(join(here, 'src/icon.svg'))
const iconName = named('icon', icon, 'svg')
files.set(iconName, icon)

files.set('index.html', Buffer.from(readFileSync(join(here, 'src/index.html'), 'utf8')
  .replaceAll('STYLE', styleName).replaceAll('SCRIPT', script).replaceAll('FONT', fontName).replaceAll('ICON', iconName)))
files.set('licences.txt', Buffer.from(licences()))
files.set('sources.txt', Buffer.from(sources() + '\n'))

if (process.argv.includes('--check')) check()
else write()

/** A name with the hash of the bytes. */
function named(name, bytes, ending) {
  return `${name}-${createHash('sha256').update(bytes).digest('hex').slice(0, 8)}.${ending}`
}

/** The hash of what all of this was built from. A test in Go compares it, so that built files that are older than the sources are found without npm. */
function sources() {
  const below = folder => readdirSync(join(here, folder), {recursive: true, withFileTypes: true}).filter(one => one.isFile()).map(one => relative(here, join(one.parentPath ?? one.path, one.name)).replaceAll('\\', '/'))
  const all = ['build.mjs', 'package.json', 'package-lock.json', 'tsconfig.json', ...below('src')].sort()
  const sha256 = bytes => createHash('sha256').update(bytes).digest('hex')
  return sha256(all.map(path => `${sha256(readFileSync(join(here, path)))}  ${path}\n`).join(''))
}

/** The licences of what is in the built files. */
function licences() {
  const shown = ['preact', 'maplibre-gl', '@noble/hashes', '@fontsource-variable/inter']
  return shown.map(name => {
    const version = JSON.parse(readFileSync(join(modules, name, 'package.json'))).version
    const file = readdirSync(join(modules, name)).find(one => /^licen[cs]e/i.test(one))
    return `${name} ${version}\n\n${readFileSync(join(modules, name, file), 'utf8').trim()}\n`
  }).join(`\n${'-'.repeat(72)}\n\n`)
}

function write() {
  rmSync(dist, {recursive: true, force: true})
  for (const [path, bytes] of files) {
    mkdirSync(dirname(join(dist, path)), {recursive: true})
    writeFileSync(join(dist, path), bytes)
  }
  sizes()
}

function check() {
  const there = readdirSync(dist, {recursive: true, withFileTypes: true}).filter(one => one.isFile()).map(one => relative(dist, join(one.parentPath ?? one.path, one.name)))
  const wrong = there.filter(one => !files.has(one)).map(one => `${one} is left over`)
  for (const [path, bytes] of files) {
    if (!there.includes(path)) wrong.push(`${path} is missing`)
    else if (!readFileSync(join(dist, path)).equals(bytes)) wrong.push(`${path} differs`)
  }
  if (wrong.length) {
    console.error(`internal/page/dist is not what web/src gives: ${wrong.join(', ')}. Run \`make page\`, and commit what changed.`)
    process.exit(1)
  }
  sizes()
}

/** What is sent, compressed: the page, and the map with it. */
function sizes() {
  let page = 0, map = 0
  for (const [path, bytes] of files) {
    if (path.endsWith('.txt')) continue
    const sent = path.endsWith('.woff2') ? bytes.length : gzipSync(bytes, {level: 9}).length
    if (path.startsWith(mapFolder) || path.startsWith('map-')) map += sent
    else page += sent
  }
  console.log(`the page is ${page} bytes compressed, and ${page + map} with the map`)
  if (page > 60_000 || page + map > 350_000) {
    console.error('the bound is 60000 bytes, and 350000 with the map')
    process.exit(1)
  }
}
