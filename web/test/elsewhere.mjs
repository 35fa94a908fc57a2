// Visitors of a node that a public authority has certified: a map on a page of another origin, and two sites. The test of interop/ starts the
// node and gives the addresses; what is wrong is an error.
import assert from 'node:assert/strict'
import {createReadStream, existsSync} from 'node:fs'
import {createServer} from 'node:http'
import {extname, join, normalize} from 'node:path'
import {chromium} from 'playwright-core'

const {NODE_PORT, AUTHORITY_KEY, PICTURE} = process.env
const library = new URL('../node_modules/maplibre-gl/dist', import.meta.url).pathname

const mapPage = `<!doctype html><title>A page of somebody else</title><style>body { margin: 0 } #map { width: 800px; height: 600px }</style><div id="map"></div>
<script type="module">
import * as maplibre from '/maplibre-gl.mjs'
maplibre.setWorkerUrl('/maplibre-gl-worker.mjs')
const map = new maplibre.Map({container: 'map', canvasContextAttributes: {preserveDrawingBuffer: true}, center: [8.54, 47.37], zoom: 12, attributionControl: false, style: {version: 8,
  sources: {town: {type: 'vector', url: 'https://www.maps.test/edge/tiles/lindach.json'}}, layers: [
    {id: 'ground', type: 'background', paint: {'background-color': '#ffffff'}},
    {id: 'water', type: 'fill', source: 'town', 'source-layer': 'water', paint: {'fill-color': '#0000ff'}},
    {id: 'roads', type: 'line', source: 'town', 'source-layer': 'transportation', paint: {'line-color': '#ff0000', 'line-width': 3}}]}})
map.on('error', event => { window.mapError = String(event.error) })
map.once('idle', () => { window.mapReady = true })
</script>`

const pages = createServer((request, answer) => {
  const file = join(library, normalize(request.url))
  if (request.url === '/') return answer.setHeader('Content-Type', 'text/html').end(mapPage)
  if (!existsSync(file)) return answer.writeHead(404).end()
  answer.setHeader('Content-Type', extname(file) === '.mjs' ? 'text/javascript' : 'text/css')
  createReadStream(file).pipe(answer)
})
await new Promise(done => pages.listen(0, '127.0.0.1', done))

const browser = await chromium.launch({timeout: 180_000, executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--use-angle=swiftshader',
  '--enable-unsafe-swiftshader', `--host-resolver-rules=MAP *.maps.test:443 127.0.0.1:${NODE_PORT}`, `--ignore-certificate-errors-spki-list=${AUTHORITY_KEY}`]})
try {
  const page = await browser.newPage({viewport: {width: 800, height: 600}})
  page.setDefaultTimeout(180_000)
  const wrong = [], protocols = new Map()
  page.on('pageerror', error => wrong.push(String(error)))
  page.context().on('response', async answer => { if (answer.url().includes('www.maps.test')) protocols.set(answer.url(), answer.status() + ' by ' + await answer.httpVersion()) }) // of workers too

  // The map of the page of another origin.
  await page.goto(`http://127.0.0.1:${pages.address().port}/`)
  await page.waitForFunction(() => window.mapReady || window.mapError)
  assert.equal(await page.evaluate(() => window.mapError), undefined)
  const seen = await page.evaluate(() => {
    const canvas = document.querySelector('canvas'), gl = canvas.getContext('webgl2'), pixels = new Uint8Array(canvas.width * canvas.height * 4)
    gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, pixels)
    let water = 0, roads = 0
    for (let i = 0; i < pixels.length; i += 4) {
      if (pixels[i] < 40 && pixels[i + 1] < 40 && pixels[i + 2] > 200) water++
      if (pixels[i] > 200 && pixels[i + 1] < 40 && pixels[i + 2] < 40) roads++
    }
    return {water, roads}
  })
  if (PICTURE) await page.screenshot({path: PICTURE})
  assert.ok(seen.water > 5000 && seen.roads > 5000, `the map is not drawn: ${JSON.stringify(seen)}`)
  assert.ok(protocols.size >= 2, 'TileJSON and tiles were asked for')
  for (const [url, how] of protocols) assert.equal(how, '200 by HTTP/2.0', url)
  assert.deepEqual(wrong, [])
  console.log(`the map is drawn by ${protocols.size} answers over HTTP/2: ${seen.water} pixels of water, ${seen.roads} of roads`)

  // A site's scripts run, and read neither another site nor the node.
  await page.goto('https://one.maps.test/')
  await page.getByText('The script has run').waitFor()
  for (const url of ['https://two.maps.test/secret.txt', 'https://two.maps.test/', 'https://www.maps.test/admin/status', 'https://www.maps.test/names', 'https://www.maps.test/overlay/peers']) {
    assert.equal(await page.evaluate(address => fetch(address).then(answer => answer.text(), () => 'refused'), url), 'refused', url)
  }
  assert.equal(await page.evaluate(() => fetch('https://www.maps.test/put', {method: 'POST', body: 'x'}).then(answer => answer.status, () => 'refused')), 'refused')
  const framed = await page.evaluate(() => new Promise(done => {
    const frame = document.createElement('iframe')
    frame.src = 'https://two.maps.test/'
    frame.onload = () => { try { done(frame.contentDocument ? 'read: ' + frame.contentDocument.body.textContent : 'refused') } catch { done('refused') } }
    document.body.append(frame)
  }))
  assert.equal(framed, 'refused')
  assert.equal(await page.evaluate(() => document.cookie), '')
  console.log('a site runs its scripts, and reads neither the other site nor the node')
} finally {
  await browser.close()
  pages.close()
}
