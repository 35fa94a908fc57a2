// Real nodes for the tests of the page, and a browser.
import {execFileSync, spawn} from 'node:child_process'
import {existsSync, mkdtempSync, readFileSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {extname, join} from 'node:path'
import {chromium} from 'playwright-core'

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
  node.status = JSON.parse(run(node, 'status', '--wait', '30s', '--json'))
  node.url = 'http://' + node.status.listen.http
  node.stop = () => child.kill('SIGINT')
  return node
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

let browser
export async function open(options = {}) {
  browser ??= await chromium.launch({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--use-angle=swiftshader', '--enable-unsafe-swiftshader', '--enable-precise-memory-info']})
  const context = await browser.newContext({viewport: {width: 1280, height: 900}, ...options})
  if (process.env.PAGE_FILES) await context.route(/^http:\/\/127\.0\.0\.1:\d+\/ui\//, fromFolder)
  const page = await context.newPage()
  page.wrong = []
  page.foreign = []
  page.on('pageerror', error => page.wrong.push(String(error)))
  page.on('console', message => { if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) page.wrong.push(message.text()) }) // a 404 is an answer
  page.on('request', request => { if (!options.elsewhere && !/^http:\/\/(127\.0\.0\.1|localhost):/.test(request.url())) page.foreign.push(request.url()) })
  return page
}

export async function stopAll() {
  await browser?.close()
  for (const child of running) child.kill('SIGINT')
  await Promise.all(running.map(child => child.exitCode !== null ? undefined : new Promise(done => child.once('exit', done))))
  rmSync(folder, {recursive: true, force: true})
}
