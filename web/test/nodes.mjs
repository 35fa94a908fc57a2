// Real nodes for the tests of the page, and a browser.
import {execFileSync, spawn} from 'node:child_process'
import {existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {extname, join} from 'node:path'
import {chromium} from 'playwright-core'
import {writeRaster, writeVector} from './packs.mjs'

const program = process.env.MICRONODE ?? new URL('../../.build/micronode', import.meta.url).pathname

export const folder = mkdtempSync(join(tmpdir(), 'micronode-page-'))
const running = []
let last = 0

/** Runs a command to its end, with the node of a socket. */
export const run = (node, ...args) => execFileSync(program, [...args, '--socket', node.socket], {encoding: 'utf8', cwd: folder}).trim()
/** A command that needs no node. */
export const tool = (...args) => execFileSync(program, args, {encoding: 'utf8', cwd: folder}).trim()

/** Starts a node on free ports, and waits until it is ready. */
export function start(args = [], env = {}) {
  const node = {socket: `page-test-${process.pid}-${++last}`}
  const child = spawn(program, ['run', '--http', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--overlay', '127.0.0.1:0', '--socket', node.socket, ...args], {stdio: 'ignore', cwd: folder, env: {...process.env, ...env}})
  running.push(child)
  node.status = JSON.parse(run(node, 'status', '--wait', '3m', '--json'))
  node.url = 'http://' + node.status.listen.http
  node.stop = () => child.kill('SIGINT')
  return node
}

/** A node with something in every place, another one that it is connected to, and a bare one. */
export function prepare() {
  mkdirSync(join(folder, 'packs'))
  writeVector(join(folder, 'packs/lindach.pmtiles'))
  writeVector(join(folder, 'packs/plain.pmtiles'), {rename: name => 'layer_' + name, name: 'Plain'})
  writeRaster(join(folder, 'packs/heights.pmtiles'))
  const facets = {MICRO_FACETS__SEARCH__ENABLED: 'true', MICRO_FACETS__FEED__ENABLED: 'true', MICRO_FACETS__GRAPH__ENABLED: 'true'}
  const node = start(['--pack', join(folder, 'packs')], facets)
  const other = start(['--peer', `${node.status.peer_id}@${node.status.listen.overlay}`])
  run(node, 'peers', 'add', `${other.status.peer_id}@${other.status.listen.overlay}`) // each knows the other
  const bare = start()
  mkdirSync(join(folder, 'site'))
  writeFileSync(join(folder, 'site/index.html'), '<h1>A site</h1>')
  writeFileSync(join(folder, 'site/notes.txt'), 'river crossings of the valley\n')
  run(node, 'put', 'site', '--name', 'docs')
  for (const name of ['alice', 'bob', 'carol']) tool('registry', 'keygen', '--out', `${name}.key`, '--no-passphrase')
  run(node, 'registry', 'init', '--m', '2', '--key', 'alice.key.pub', '--key', 'bob.key.pub', '--key', 'carol.key.pub')
  return {node, other, bare}
}

/** The link that opens a path of the page with a capability. */
export function linkTo(node, path = '/ui/', ...args) {
  const link = new URL(run(node, 'ui', '--print', ...args))
  return node.url + path + link.hash
}

/** With PAGE_FILES=FOLDER the files come from there and not from the binary, so that it need not be built after every change. */
async function fromFolder(route) {
  const dist = process.env.PAGE_FILES + '/', name = decodeURIComponent(new URL(route.request().url()).pathname.slice(4))
  if (route.request().method() !== 'GET') return route.continue()
  const file = name && existsSync(dist + name) ? name : 'index.html'
  const types = {'.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.mjs': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.woff2': 'font/woff2'}
  const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
  await route.fulfill({body: readFileSync(dist + file), headers: {'Content-Type': types[extname(file)] ?? 'application/octet-stream', 'Content-Security-Policy': csp}})
}

// How long something may be awaited that comes at once where nothing is broken: long, because the machine may be busy.
const patience = Number(process.env.PATIENCE ?? 180_000)

let browser
export async function open(options = {}) {
  browser ??= await chromium.launch({timeout: patience, executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--use-angle=swiftshader', '--enable-unsafe-swiftshader', '--enable-precise-memory-info']})
  const context = await browser.newContext({viewport: {width: 1280, height: 900}, ...options})
  if (process.env.PAGE_FILES) await context.route(/^http:\/\/127\.0\.0\.1:\d+\/ui\//, fromFolder)
  context.setDefaultTimeout(patience)
  const page = await context.newPage()
  page.wrong = []
  page.foreign = []
  page.on('pageerror', error => page.wrong.push(String(error)))
  page.on('console', message => { if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) page.wrong.push(message.text()) }) // a 404 is an answer
  page.asked = new Set() // requests without an answer yet; streams have none
  page.on('request', request => { if (!/\/(stream|subscribe)\b/.test(request.url())) page.asked.add(request) })
  for (const end of ['requestfinished', 'requestfailed']) page.on(end, request => page.asked.delete(request))
  page.on('request', request => { if (!options.elsewhere && !/^http:\/\/(127\.0\.0\.1|localhost):/.test(request.url())) page.foreign.push(request.url()) })
  return page
}

export const places = ['', 'content', 'map/lindach', 'network', 'registry', 'cache', 'settings', 'messages']

/** Goes to a place as a click on a link does: the page is not loaded anew, and keeps its capability. */
export async function visit(page, place) {
  await page.evaluate(path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); scrollTo(0, 0) }, '/ui/' + place)
  if (place.startsWith('map')) await mapDrawn(page)
  await settled(page)
}

export const mapDrawn = page => page.locator('.map-canvas[data-ready=true]').waitFor()

/** Waits until what the page asked for is there and shown. */
export async function settled(page) {
  await page.evaluate(() => document.fonts.ready.then(() => true))
  for (let calm = 0; calm < 3; calm++) {
    await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done()))))
    if (page.asked.size || await page.locator('.calm', {hasText: '…'}).count()) { calm = -1; await page.waitForTimeout(50) }
  }
}

export async function stopAll() {
  await browser?.close()
  for (const child of running) child.kill('SIGINT')
  await Promise.all(running.map(child => child.exitCode !== null ? undefined : new Promise(done => child.once('exit', done))))
  rmSync(folder, {recursive: true, force: true})
}
