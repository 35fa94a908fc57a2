// The page in a real browser, against real nodes. `make page-browser` runs it; pictures.mjs makes pictures of it.
import assert from 'node:assert/strict'
import {execFileSync} from 'node:child_process'
import {createHash} from 'node:crypto'
import {existsSync, readFileSync, writeFileSync} from 'node:fs'
import {createServer} from 'node:http'
import {createServer as createSecureServer} from 'node:https'
import {after, before, test} from 'node:test'
import {join} from 'node:path'
import ts from 'typescript'
import {folder, linkTo, mapDrawn, open, places, prepare, run, settled, start, stopAll, tool, visit} from './nodes.mjs'
import {writeMBTiles} from './packs.mjs'

let node, other, bare

before(() => { ({node, other, bare} = prepare()) })
after(stopAll)

/** What every page must hold to: no error of its own, and no other host. */
function clean(page) {
  assert.deepEqual(page.wrong, [])
  assert.deepEqual(page.foreign, [])
}

async function opened(path, options, of = node) {
  const page = await open(options)
  await page.goto(linkTo(of, path))
  await page.locator('h1').first().waitFor({state: 'attached'})
  return page
}

test('without a capability the page shows what is public, and says how to see the rest', async () => {
  const page = await open()
  await page.goto(node.url + '/')
  assert.equal(new URL(page.url()).pathname, '/ui/')
  await page.getByText('The node serves reads and writes').waitFor()
  await page.getByText('micronode ui', {exact: true}).waitFor()
  for (const place of ['settings', 'cache']) {
    await page.goto(`${node.url}/ui/${place}`)
    await page.getByText('Open it with a capability').waitFor()
  }
  for (const path of ['/admin/ui/stream', '/admin/config', '/o']) assert.equal((await fetch(node.url + path)).status, 401, path)
  clean(page)
  await page.context().close()
})

test('a link works once, and leaves no trace in the address', async () => {
  const link = linkTo(node)
  const page = await open()
  await page.goto(link)
  await page.getByText('This node', {exact: true}).waitFor()
  assert.ok(!page.url().includes('link='))
  assert.equal(await page.evaluate(() => document.cookie + Object.keys(localStorage) + Object.keys(sessionStorage)), '')
  clean(page)
  const again = await open()
  await again.goto(link)
  await again.getByText('the link was opened before, or is older than a minute', {exact: false}).or(again.getByText('The link was opened before')).first().waitFor()
  await again.context().close()
  await page.reload()
  await page.getByText('Open it with a capability').waitFor() // a reload forgets it
  await page.context().close()
})

test('a narrow capability shows less, and its refusals are explained', async () => {
  const page = await open()
  await page.goto(linkTo(node, '/ui/', '--scope', 'object:put'))
  await page.getByText('This capability does not allow it').waitFor()
  await page.goto(node.url + '/ui/content')
  await page.context().close()
})

test('a capability that was pasted shows what it allows, and one of another node is refused with the next step', async () => {
  const paste = async (page, token) => {
    await page.getByLabel(/Or paste a capability/).fill(token)
    await page.getByRole('button', {name: 'Use it'}).click()
  }
  const page = await open()
  await page.goto(node.url + '/ui/content')
  await paste(page, tokenOf(node, 'object:put'))
  await page.getByRole('button', {name: 'Choose files'}).waitFor()
  await visit(page, 'content/name:docs')
  assert.equal(await page.getByRole('button', {name: 'Pin', exact: true}).count(), 0)
  assert.equal(await page.getByRole('button', {name: 'Set the name'}).count(), 0)
  await visit(page, 'registry')
  assert.equal(await page.getByRole('button', {name: 'Propose', exact: true}).count(), 0)
  await page.reload()
  await page.goto(node.url + '/ui/messages')
  await paste(page, tokenOf(bare, 'admin')) // of another node: its buttons are there, and refused
  await page.getByLabel('Box').fill('jobs')
  await page.getByLabel('Message', {exact: true}).fill('not for you')
  await page.getByRole('button', {name: 'Send', exact: true}).click()
  const problem = page.locator('form ~ .note.problem').first()
  await problem.waitFor()
  assert.ok((await problem.locator('strong').textContent()).length > 3, 'a title')
  assert.ok((await problem.locator('p').first().textContent()).length > 10, 'a detail')
  assert.match(await problem.locator('.next').textContent(), /token mint|micronode/)
  assert.match(await problem.textContent(), /Correlation ID/)
  clean(page)
  await page.context().close()
  // And without any: everything that changes something is refused.
  for (const [method, path] of [['POST', '/o'], ['DELETE', '/o/b3:' + 'ab'.repeat(32)], ['POST', '/admin/pin'], ['POST', '/admin/edge/purge'], ['PUT', '/names/docs'], ['POST', '/registry/proposals'], ['POST', '/registry/commit/' + 'a'.repeat(26)],
    ['POST', '/mbox/send'], ['POST', '/overlay/publish/news'], ['DELETE', '/overlay/peers/' + other.status.peer_id], ['POST', '/admin/shutdown']]) {
    const answer = await fetch(node.url + path, {method, body: method === 'DELETE' ? undefined : '{}', headers: {'Content-Type': 'application/json'}})
    const body = await answer.json()
    assert.ok(answer.status === 401 && body.title && body.detail && body.next && body.corr_id, `${method} ${path}: ${answer.status} ${JSON.stringify(body)}`)
  }
})

test('a problem shows its title, its detail, the next step and the correlation ID', async () => {
  const page = await opened('/ui/content/name:nobody-gave-this')
  const problem = page.locator('.drawer .note.problem')
  await problem.waitFor()
  const answer = await fetch(node.url + '/resolve/name:nobody-gave-this'), document = await answer.json()
  assert.equal(await problem.locator('strong').textContent(), document.title)
  assert.equal((await problem.locator('p').first().textContent()).toLowerCase().replace(/\.$/, ''), document.detail.toLowerCase().replace(/\.$/, ''))
  assert.equal(await problem.locator('.next').textContent(), document.next)
  assert.ok(await problem.getByRole('button', {name: /copy the correlation ID/}).count())
  clean(page)
  await page.context().close()
})

test('numbers change under load, and stop while the page is hidden', async () => {
  const page = await opened('/ui/')
  const requests = page.locator('.number').first().locator('.figure')
  await page.getByText('Requests', {exact: true}).waitFor()
  let stop = false
  const load = (async () => { // moderate, and as fast as it is answered
    while (!stop) {
      await Promise.all(Array.from({length: 10}, () => fetch(node.url + '/edge/packs').then(answer => answer.arrayBuffer(), () => {}))) // one that is closed meanwhile is no matter
      await new Promise(done => setTimeout(done, 50))
    }
  })()
  await page.waitForFunction(() => parseFloat(document.querySelector('.number .figure').textContent.replaceAll('\u00a0', '')) > 3)
  const before = await page.locator('.numbers').boundingBox()
  await page.evaluate(() => new Promise(done => { // the figure changes three times
    let changes = 0
    new MutationObserver(() => { if (++changes === 3) done() }).observe(document.querySelector('.number .figure'), {subtree: true, childList: true, characterData: true})
  }))
  assert.deepEqual(await page.locator('.numbers').boundingBox(), before, 'nothing jumps')
  stop = true
  await load
  assert.ok(await requests.textContent())
  // Hidden, it asks for nothing.
  await page.evaluate(() => { Object.defineProperty(document, 'hidden', {value: true, configurable: true}); document.dispatchEvent(new Event('visibilitychange')) })
  let asked = 0
  page.on('request', () => asked++)
  await page.waitForTimeout(7000)
  assert.equal(asked, 0)
  const again = page.waitForRequest(/ui\/stream/)
  await page.evaluate(() => { delete document.hidden; document.dispatchEvent(new Event('visibilitychange')) })
  await again
  clean(page)
  await page.context().close()
})

test('what happened before the page was opened is there', async () => {
  const page = await opened('/ui/')
  await page.locator('.events').getByText('session opened').first().waitFor()
  const lines = await page.locator('.events li').count()
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange'))) // the stream is opened anew, and begins with the same events
  await page.waitForResponse(/ui\/stream/)
  await settled(page)
  assert.ok(await page.locator('.events li').count() < 2 * lines, 'each once')
  clean(page)
  await page.context().close()
})

/** The first snapshot that a node streams. */
async function snapshotOf(node) {
  const stop = new AbortController()
  const answer = await fetch(node.url + '/admin/ui/stream', {headers: {Authorization: `Bearer ${tokenOf(node, 'admin')}`}, signal: stop.signal})
  let text = ''
  for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {
    text += part
    const found = /event: snapshot\n(?:id: .*\n)?data: (.*)\n/.exec(text)
    if (found) { stop.abort(); return JSON.parse(found[1]) }
  }
}

const tokenOf = (node, ...scopes) => run(node, 'token', 'mint', ...scopes.flatMap(one => ['--scope', one]), '--ttl', '1h').split('\n').at(-1)

test('a queue that refuses is red, with its rate, and reasons have theirs', async () => {
  const now = await snapshotOf(node), queue = now.status.queues.at(-1), key = `${queue.service}/${queue.name}`
  const later = {...now, at: new Date(Date.parse(now.at) + 2000).toISOString(), refused: {...now.refused, [key]: (now.refused[key] ?? 0) + 10},
    counters: {...now.counters, 'rejected_total/queue_full': (now.counters['rejected_total/queue_full'] ?? 0) + 6}}
  const page = await open()
  await page.route('**/admin/ui/stream', route => route.fulfill({contentType: 'text/event-stream', body: [now, later].map(one => `event: snapshot\ndata: ${JSON.stringify(one)}\n\n`).join('')}))
  await page.goto(linkTo(node))
  const row = page.locator('.queues li').first() // before all that only fill
  await row.getByText('refuses 5.0 per second').waitFor()
  assert.ok((await row.locator('.name').textContent()).endsWith(queue.name))
  assert.equal(await row.locator('.bar.bad').count(), 1)
  assert.match(await page.getByRole('row', {name: /queue full/}).textContent(), /3\.0/)
  clean(page)
  await page.context().close()
})

test('a lost node is reported, and found again', async () => {
  const page = await open()
  await page.goto(linkTo(bare))
  await page.getByText('This node', {exact: true}).waitFor()
  await page.route('**/admin/ui/stream', route => route.abort())
  await page.evaluate(() => { document.dispatchEvent(new Event('visibilitychange')) })
  await page.getByText('No answer from the node').waitFor()
  await page.unroute('**/admin/ui/stream')
  await page.getByText('No answer from the node').waitFor({state: 'hidden'})
  await page.context().close()
})

test('files are put, found again, verified, named and removed', async () => {
  const page = await opened('/ui/content')
  const bytes = Buffer.alloc(3 << 20, 'micronode ')
  const chooser = page.waitForEvent('filechooser')
  await page.getByRole('button', {name: 'Choose files'}).click()
  await (await chooser).setFiles([{name: 'large.bin', mimeType: 'application/octet-stream', buffer: bytes}])
  await page.getByText('Stored', {exact: true}).waitFor()
  // The same bytes again are not sent again.
  let sent = 0
  page.on('request', request => { if (request.method() === 'POST' && request.url().includes('/o?')) sent++ })
  const second = page.waitForEvent('filechooser')
  await page.getByRole('button', {name: 'Choose files'}).click()
  await (await second).setFiles([{name: 'same.bin', mimeType: 'application/octet-stream', buffer: bytes}])
  await page.getByText('Was here already').waitFor()
  assert.equal(sent, 0)
  await page.getByRole('link', {name: 'Show'}).first().click()
  await page.getByRole('button', {name: 'Verify in this browser'}).click()
  await page.getByText('The BLAKE3 hash of these bytes is the address').waitFor()
  const address = decodeURIComponent(new URL(page.url()).pathname.split('/').at(-1))
  writeFileSync(join(folder, 'large.bin'), bytes)
  assert.equal(run(bare, 'put', 'large.bin').split(/\s/)[0], address, 'the address is that of the command')
  await page.getByRole('radio', {name: 'QR code'}).click()
  await page.locator('svg.qr').waitFor()
  await page.getByLabel('Name', {exact: true}).fill('large')
  await page.getByRole('button', {name: 'Set the name'}).click()
  await page.getByText('name:large points to it').waitFor()
  const {manifest_cid} = await (await fetch(node.url + '/resolve/name:large')).json()
  const [entry] = JSON.parse(run(node, 'get', manifest_cid, '-o', '-')).entries
  assert.equal(entry.type, (await fetch(`${node.url}/o/${address}`, {method: 'HEAD'})).headers.get('Content-Type'), 'the type is that of the object')
  await page.getByText('Remove it from this node').click()
  assert.ok(await page.getByRole('button', {name: 'Remove', exact: true}).isDisabled())
  await page.getByLabel(/^Type/).fill(address.slice(3, 9))
  await page.getByRole('button', {name: 'Remove', exact: true}).click()
  await page.getByText('Removed. Other nodes may still have it.').waitFor()
  clean(page)
  await page.context().close()
})

test('an upload that was stopped goes on', async () => {
  const page = await opened('/ui/content')
  const chooser = page.waitForEvent('filechooser')
  let refused = 0
  await page.route('**/o?want=*', route => refused++ < 1 ? route.abort() : route.continue())
  await page.getByRole('button', {name: 'Choose files'}).click()
  await (await chooser).setFiles([{name: 'broken.txt', mimeType: 'text/plain', buffer: Buffer.from('sent in two parts')}])
  await page.getByText('Failed', {exact: true}).waitFor()
  await page.getByRole('button', {name: 'Go on'}).click()
  await page.getByText('Stored', {exact: true}).waitFor()
  await page.context().close()
})

test('a folder has the address that the command gives it', async () => {
  const page = await opened('/ui/content')
  const address = await page.evaluate(async () => {
    const put = document.querySelector('input[aria-label="A folder to put"]')
    const transfer = new DataTransfer()
    const add = (name, text) => { const file = new File([text], name.split('/').at(-1)); Object.defineProperty(file, 'webkitRelativePath', {value: name}); transfer.items.add(file); return file }
    const files = [add('site/notes.txt', 'river crossings of the valley\n'), add('site/index.html', '<h1>A site</h1>')]
    Object.defineProperty(put, 'files', {value: files})
    put.dispatchEvent(new Event('change', {bubbles: true}))
    return new Promise(done => { const timer = setInterval(() => { const link = document.querySelector('.uploads a'); if (link) { clearInterval(timer); done(decodeURIComponent(link.getAttribute('href').split('/').at(-1))) } }, 100) })
  })
  assert.equal(run(node, 'put', 'site').split('\n').at(-1).split(/\s/)[0], address)
  clean(page)
  await page.context().close()
})

for (const [pack, least] of [['lindach', 6], ['plain', 4], ['heights', 8], ['valley', 6]]) test(`the pack ${pack} is drawn, light and dark`, async () => {
  if (pack === 'valley') { // MBTiles, which the node finds in its folder while it runs
    writeMBTiles(join(folder, 'packs/valley.mbtiles'))
    while (!(await (await fetch(node.url + '/edge/packs')).json()).packs.some(one => one.name === 'valley' && one.state === 'serving')) await new Promise(done => setTimeout(done, 200))
  }
  const light = {}
  for (const colorScheme of ['light', 'dark']) {
    const page = await opened(`/ui/map/${pack}`, {colorScheme})
    await mapDrawn(page)
    assert.ok(await page.locator('canvas.maplibregl-canvas').isVisible())
    const {colours, brightness} = await coloursOf(page, await page.screenshot())
    assert.ok(colours >= least, `${colours} colours, ${colorScheme}`)
    light[colorScheme] = brightness
    clean(page)
    await page.context().close()
  }
  // Vectors are drawn in the colours of the theme; pictures are what they are.
  if (pack === 'heights') assert.ok(Math.abs(light.light - light.dark) < 40, JSON.stringify(light))
  else assert.ok(light.light > 170 && light.dark < 80, JSON.stringify(light))
})

/** The colours of a screenshot, coarsely, and how bright it is, in the part of it where only the map is. */
async function coloursOf(page, picture) {
  const viewer = await open({elsewhere: true})
  await viewer.setContent('<canvas></canvas>')
  const n = await viewer.evaluate(async data => {
    const image = new Image()
    image.src = 'data:image/png;base64,' + data
    await image.decode()
    const canvas = document.querySelector('canvas')
    canvas.width = 500; canvas.height = 500
    canvas.getContext('2d').drawImage(image, 640, 300, 500, 500, 0, 0, 500, 500)
    const pixels = canvas.getContext('2d').getImageData(0, 0, 500, 500).data, seen = new Map()
    let sum = 0
    for (let i = 0; i < pixels.length; i += 4) { sum += (pixels[i] + pixels[i + 1] + pixels[i + 2]) / 3; const key = `${pixels[i] >> 3},${pixels[i + 1] >> 3},${pixels[i + 2] >> 3}`; seen.set(key, (seen.get(key) ?? 0) + 1) }
    return {colours: [...seen.values()].filter(count => count > 40).length, brightness: sum / (pixels.length / 4)}
  }, picture.toString('base64'))
  await viewer.context().close()
  return n
}

test('a click on the map shows properties, and layers can be hidden', async () => {
  const page = await opened('/ui/map/lindach')
  await mapDrawn(page)
  await page.mouse.click(870, 600)
  await page.locator('.feature').first().waitFor()
  assert.match(await page.locator('.feature').first().textContent(), /class/)
  await page.getByRole('radio', {name: 'Layers'}).click()
  const before = (await coloursOf(page, await page.screenshot())).colours
  for (const layer of ['building', 'landuse', 'transportation', 'transportation_name', 'landcover']) await page.getByLabel(layer, {exact: true}).uncheck()
  while ((await coloursOf(page, await page.screenshot())).colours >= before) await page.waitForTimeout(100) // until the map is drawn anew
  await page.getByRole('radio', {name: 'Use it'}).click()
  await page.getByText("sources: {pack: {type: 'vector'").waitFor()
  await page.getByRole('button', {name: 'Zoom in'}).click()
  await page.waitForURL(/at=/)
  // The attribution of a pack is untrusted, and is text.
  assert.equal(await page.locator('.attribution').textContent(), '© the tests')
  // Who leaves while the map moves is not taken back to it.
  await page.getByRole('button', {name: 'Zoom in'}).click()
  await visit(page, 'network')
  assert.equal(new URL(page.url()).pathname, '/ui/network')
  clean(page)
  await page.context().close()
})

test('the peers are shown, and the messages of a topic as they come', async () => {
  const page = await opened('/ui/network')
  await page.getByText('post-quantum', {exact: true}).waitFor()
  await page.getByRole('textbox', {name: 'Topic', exact: true}).fill('news/local')
  await page.getByRole('button', {name: 'Listen'}).click()
  await page.getByText('Listening to news/local').waitFor()
  // That the page listens is known to this node at once, and to the other one when its gossip has come there.
  const shown = page.getByText('the bridge is open').first()
  do run(other, 'pub', 'news/local', 'the bridge is open')
  while (!await shown.waitFor({timeout: 2000}).then(() => true, () => false))
  clean(page)
  await page.context().close()
})

test('a peer that nobody knows is said to be unknown', async () => {
  const page = await opened('/ui/network'), id = 'a'.repeat(52)
  await page.keyboard.press('/')
  await page.keyboard.type(id)
  await page.keyboard.press('Enter')
  await page.locator('.drawer').getByText('This node does not know this peer').waitFor()
  await page.getByText(`micronode peers add ${id}@HOST:PORT`).waitFor()
  clean(page)
  await page.context().close()
})

test('who knocked is let in, and an invitation lets another node in', async () => {
  const page = await opened('/ui/network')
  const stranger = start(['--peer', `${node.status.peer_id}@${node.status.listen.overlay}`])
  await page.getByRole('button', {name: `Let ${stranger.status.peer_id.slice(0, 10)}`}).click()
  await page.getByRole('link', {name: stranger.status.peer_id.slice(0, 8)}).waitFor() // a peer now
  await page.getByRole('heading', {name: 'Knocks'}).waitFor({state: 'detached'})
  await page.getByRole('button', {name: 'Make an invitation'}).click()
  const invitation = await page.getByRole('group', {name: 'Invitation'}).textContent()
  assert.match(invitation, /^mn1_i/)
  await page.getByText('Show it as a QR code').click()
  await page.locator('svg.qr').waitFor()
  clean(page)
  await page.context().close()
  stranger.stop()
})

test('a change is proposed, approved with key files that stay in the page, and committed', async () => {
  const page = await opened('/ui/registry')
  const bodies = []
  page.on('request', request => bodies.push(request.postData() ?? ''))
  const address = 'b3:' + 'ab'.repeat(32)
  await page.getByRole('textbox', {name: 'Name', exact: true}).fill('guide')
  await page.getByRole('textbox', {name: 'Address', exact: true}).fill(address)
  await page.getByRole('button', {name: 'Propose', exact: true}).click()
  await page.getByText('It waits for signatures').waitFor()
  for (const name of ['alice', 'bob']) {
    await page.getByRole('button', {name: 'Approve with a key file'}).click()
    await page.getByLabel('Key file, which stays in this browser').setInputFiles(join(folder, `${name}.key`))
    await page.getByRole('button', {name: 'Sign', exact: true}).click()
    await page.getByText(new RegExp(`of 2 signatures: .*${name}`)).waitFor()
  }
  const seed = readFileSync(join(folder, 'alice.key'), 'utf8').trim().slice('ed25519-seed:'.length)
  assert.ok(!bodies.some(body => body.includes(seed.slice(0, 20))), 'the key was sent')
  await page.getByRole('button', {name: 'Commit'}).click()
  await page.getByText('No proposal is open').waitFor()
  await page.getByRole('link', {name: 'Version 1', exact: true}).click()
  await page.getByRole('button', {name: 'Check the proof in this browser'}).click()
  await page.getByText('2 of the 3 signers since version 0 signed it, and 2 are needed').waitFor()
  await page.getByText('Not checked: that these are the registry').waitFor()
  assert.equal(await page.locator('.drawer .state.bad').count(), 0)
  assert.ok(await page.locator('.drawer .state.good').count() >= 6)
  clean(page)
  await page.context().close()
})

/** Proposes a change by the command, and returns the ID of the proposal. */
function propose(ops) {
  writeFileSync(join(folder, 'change.json'), JSON.stringify({schema_version: '1.0.0', ops}))
  return JSON.parse(run(node, 'registry', 'propose', 'change.json', '--json')).proposal_id
}

const pointTo = (id, byte) => ({op: 'put', item: {kind: 'name', id, manifest: 'b3:' + byte.repeat(32)}})
const rowOf = (page, id) => page.locator('.proposals > li', {hasText: id.slice(0, 10)})

/** Has the node lie: the JSON of these answers is changed on its way. */
const lie = (page, path, change) => page.route(path, async route => {
  const answer = await route.fetch()
  await route.fulfill({response: answer, json: change(await answer.json())})
})
const instead = (from, to) => body => JSON.parse(JSON.stringify(body).replaceAll(from.repeat(32), to.repeat(32)))

test('what is signed is what is shown, whatever the node says of it', async () => {
  const id = propose([pointTo('trap', 'cd')])
  // The list lies, and what is signed does not: the truth is shown, and that the list is another.
  let page = await opened('/ui/registry')
  await lie(page, '**/registry/proposals', instead('cd', 'ef'))
  await page.getByText('manifest b3:' + 'ef'.repeat(32)).waitFor()
  await rowOf(page, id).getByRole('button', {name: 'Approve with a key file'}).click()
  const signed = page.getByRole('group', {name: 'What is signed'})
  assert.equal(await signed.textContent(), `+ name trap\n    manifest b3:${'cd'.repeat(32)}`)
  await page.getByText('The list of this node shows another change').waitFor()
  assert.equal(await page.getByText('ef'.repeat(32)).count(), 0)
  await page.context().close()

  // Only the words of the node lie: nobody sees them.
  page = await opened('/ui/registry')
  await lie(page, '**/registry/proposals', body => ({proposals: body.proposals.map(one => ({...one, diff_text: 'nothing of importance'}))}))
  await page.getByText('manifest b3:' + 'cd'.repeat(32)).waitFor()
  assert.equal(await page.getByText('nothing of importance').count(), 0)
  // A node that does not say which registry it has.
  await page.route('**/registry/key', route => route.fulfill({status: 500, contentType: 'application/problem+json', json: {title: 'Internal', status: 500, code: 'Internal', detail: 'the key was lost.', next: '', corr_id: '', retryable: false}}))
  await rowOf(page, id).getByRole('button', {name: 'Approve with a key file'}).click()
  await page.getByText('The node does not say which registry it has: the key was lost').waitFor()
  await page.context().close()

  // The operations, the values before, the message: each must fit the others, or there is nothing to press.
  const wrong = {
    'The operations of the node are not those of the message': ['**/registry/proposals/*', instead('cd', 'ef')],
    'The values before are not those of the message': ['**/registry/proposals/*', body => ({...body, diff: body.diff.map(one => ({...one, before: {kind: 'name', id: 'trap', manifest: 'b3:' + '00'.repeat(32)}}))})],
    'The message is about another proposal': ['**/registry/proposals/*', body => ({...body, sign_this: btoa(atob(body.sign_this).replace(id, 'a'.repeat(26)))})],
    'The message is not the approval of a registry': ['**/registry/proposals/*', body => ({...body, sign_this: btoa('transfer everything')})],
    'The message is for another registry': ['**/registry/key', body => ({...body, registry: 'b3:' + '00'.repeat(32)})],
  }
  for (const [words, [path, change]] of Object.entries(wrong)) {
    page = await opened('/ui/registry')
    await lie(page, path, change)
    await rowOf(page, id).getByRole('button', {name: 'Approve with a key file'}).click()
    await page.getByRole('alert').getByText(words).waitFor()
    assert.equal(await page.getByRole('button', {name: 'Sign', exact: true}).count(), 0, words)
    await page.context().close()
  }
})

/** Makes a key file with a passphrase, once. */
function sealedKey() {
  if (existsSync(join(folder, 'sealed.key'))) return
  writeFileSync(join(folder, 'passphrase'), 'correct horse\n')
  tool('registry', 'keygen', '--out', 'sealed.key', '--passphrase-file', 'passphrase')
}

test('an encrypted key file stays where it is: the page names the command', async () => {
  const id = propose([pointTo('sealed', 'ab')])
  sealedKey()
  const page = await opened('/ui/registry')
  await rowOf(page, id).getByRole('button', {name: 'Approve with a key file'}).click()
  await page.getByLabel('Key file, which stays in this browser').setInputFiles(join(folder, 'sealed.key'))
  await page.getByText('This key file is encrypted').waitFor()
  await page.getByText(`micronode registry approve ${id} --key sealed.key`).waitFor()
  assert.ok(await page.getByRole('button', {name: 'Sign', exact: true}).isDisabled())
  clean(page)
  await page.context().close()
})

/** The steps of the proof of a version, as the page shows them: + right, - wrong. */
async function proofOf(number, change) {
  const page = await opened(`/ui/registry/${number}`)
  if (change) await lie(page, '**/registry/bundle/*', change)
  await page.getByRole('button', {name: 'Check the proof in this browser'}).click()
  await page.locator('.drawer .state, .drawer .note.problem').first().waitFor()
  await page.getByText('Not checked: that these').or(page.locator('.drawer .state.bad')).or(page.locator('.drawer .note.problem')).first().waitFor()
  const steps = await page.locator('.drawer ul[aria-live] .state').evaluateAll(list => list.map(one => (one.classList.contains('good') ? '+ ' : '- ') + one.textContent))
  await page.context().close()
  return steps
}

test('a proof follows the signers, and finds what is wrong', async () => {
  const commit = (ops, ...by) => {
    const id = propose(ops)
    for (const name of by) run(node, 'registry', 'approve', id, '--key', `${name}.key`, '--yes')
    run(node, 'registry', 'commit', id)
    return JSON.parse(run(node, 'registry', 'head', '--json')).version
  }
  tool('registry', 'keygen', '--out', 'dave.key', '--no-passphrase')
  const keyOf = name => ({signer_id: name, public: readFileSync(join(folder, `${name}.key.pub`), 'utf8').trim()})
  const rotation = commit([{op: 'put', item: {kind: 'signers', id: 'signers', m: 2, keys: ['alice', 'dave'].map(keyOf)}}], 'alice', 'bob')
  const last = commit([pointTo('after', 'aa')], 'alice', 'dave')

  // The old set signed the change of the set, the new one what came after it.
  const before = await proofOf(rotation)
  assert.equal(before.at(-1), '+ 2 of the 3 signers since version 0 signed it, and 2 are needed')
  const steps = await proofOf(last)
  assert.deepEqual(steps.filter(one => one.startsWith('-')), [])
  assert.ok(steps.includes(`+ Version ${rotation} changed the signers, and enough of those before it signed that`), steps)
  assert.equal(steps.at(-1), `+ 2 of the 2 signers since version ${rotation} signed it, and 2 are needed`)

  // What is in force now is the new set.
  const page = await opened('/ui/registry/' + last)
  await page.getByText('2 of 2 sign').waitFor()
  await page.goto('about:blank')
  await page.context().close()

  const other = text => (text[0] === 'A' ? 'B' : 'A') + text.slice(1)
  const wrong = {
    'The key of the log has signed a checkpoint': body => ({...body, checkpoint: body.checkpoint.replace(/— (\S+) (\S{20})(.)/, (_, name, start, one) => `— ${name} ${start}${one === 'A' ? 'B' : 'A'}`)}),
    'It is in that log, in its place': body => ({...body, inclusion: body.inclusion.map(other)}),
    'That log begins with the version that the registry is named by': body => ({...body, signers: body.signers.slice(1)}),
    [`Version ${rotation} changed the signers`]: body => ({...body, signers: body.signers.map(one => one.version === rotation ? {...one, record: {...one.record, payload: body.signers[0].record.payload}} : one)}),
    [`0 of the 3 signers since version 0 signed it`]: body => ({...body, signers: body.signers.slice(0, 1)}), // the old set for the new one
    'What is shown above is what the hash of the version stands for': body => ({...body, record: body.signers[0].record}),
  }
  for (const [words, change] of Object.entries(wrong)) {
    const found = await proofOf(last, change)
    assert.ok(found.at(-1).startsWith('- ' + words), `${words}: ${found.join('; ')}`)
  }

  // What the node says beside the bytes is not shown.
  const told = await open()
  await lie(told, `${node.url}/registry/${last}`, body => ({...body, ops: [], approvals: [{...body.approvals[0], signer_id: 'mallory'}]}))
  await told.goto(linkTo(node, `/ui/registry/${last}`))
  await told.locator('.drawer').getByText('manifest b3:' + 'aa'.repeat(32)).waitFor()
  await told.locator('.drawer').getByText('dave', {exact: true}).waitFor()
  assert.equal(await told.getByText('mallory').count(), 0)
  await lie(told, `${node.url}/registry/${rotation}`, body => ({...body, header: btoa(atob(body.header).replace('{', '{ '))}))
  await visit(told, `registry/${rotation}`)
  await told.getByText('The bytes that the node gives for this version cannot be read').waitFor()
  await told.context().close()
})

test('the cache shows what it answered, fetched and refused, and forgets on request', async () => {
  execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', 'origin.key', '-out', 'origin.pem', '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'], {cwd: folder, stdio: 'ignore'})
  const origin = createSecureServer({key: readFileSync(join(folder, 'origin.key')), cert: readFileSync(join(folder, 'origin.pem'))}, (request, answer) => answer.setHeader('Cache-Control', 'max-age=600').setHeader('Content-Type', 'text/plain').end(request.url))
  await new Promise(done => origin.listen(0, 'localhost', done))
  const host = `localhost:${origin.address().port}`
  const edge = start(['--allow', host], {SSL_CERT_FILE: join(folder, 'origin.pem'), MICRO_EDGE__FILL__ALLOW_PRIVATE: 'true'})
  const get = path => fetch(`${edge.url}/edge/assets/${path}`)
  for (const path of ['one', 'one', 'one', 'two']) { const answer = await get(`${host}/${path}`); assert.equal(`${answer.status} ${await answer.text()}`, `200 /${path}`) }
  for (const path of ['elsewhere.example.org/', 'elsewhere.example.org/']) assert.equal((await get(path)).status, 403)
  await fetch(`${edge.url}/resolve/name:nobody`)
  const page = await opened('/ui/cache', undefined, edge)
  await page.getByText('50 %').waitFor()
  await page.getByText('2 of 4', {exact: true}).waitFor()
  await page.locator('.big-numbers > div', {hasText: 'Asked the origin'}).locator('.figure', {hasText: /^2$/}).waitFor()
  await page.locator('.big-numbers > div', {hasText: 'Refused'}).locator('.figure', {hasText: /^2$/}).waitFor()
  await page.getByLabel('Forget the answers for URLs that begin with').fill(`https://${host}/`)
  await page.getByRole('button', {name: 'Purge'}).click()
  await page.getByText('2 answers are forgotten').waitFor()
  await (await get(`${host}/one`)).text()
  await page.locator('.big-numbers > div', {hasText: 'Asked the origin'}).locator('.figure', {hasText: /^3$/}).waitFor() // fetched anew
  for (const bar of await page.locator('[role=meter]').all()) assert.ok(!await bar.evaluate(one => one.classList.contains('bad') && one.getAttribute('aria-label').startsWith('Look-ups')), 'a good share is not red')
  clean(page)
  await page.context().close()
  edge.stop()
  origin.close()
})

test('settings say where they come from', async () => {
  const page = await opened('/ui/settings?q=facets.search.enabled')
  await page.getByText('facets.search.enabled', {exact: true}).waitFor()
  await page.getByText(/MICRO_FACETS__SEARCH__ENABLED/).first().waitFor({state: 'attached'})
  await page.getByRole('radio', {name: 'Not the default'}).click()
  await page.getByText('facets.search.enabled', {exact: true}).waitFor()
  clean(page)
  await page.context().close()
})

test('words are found, posts are read, messages are sent', async () => {
  const page = await opened('/ui/messages')
  await page.getByLabel('Box').fill('jobs')
  await page.getByLabel('Message', {exact: true}).fill('paint the fence')
  await page.getByRole('button', {name: 'Send', exact: true}).click()
  await page.getByText(/Stored as/).waitFor()
  assert.match(run(node, 'mbox', 'recv', 'jobs', '--ack'), /paint the fence/)
  await page.getByRole('radio', {name: 'Search'}).click()
  await page.getByLabel('Words').fill('crossings')
  await page.getByRole('button', {name: 'Search', exact: true}).click()
  await page.getByText('river crossings of the valley').first().waitFor()
  await page.route('**/search?q=beyond', route => route.fulfill({status: 400, contentType: 'application/problem+json', json: {title: 'Malformed', status: 400, code: 'Malformed', detail: 'the offset is too large', next: 'Ask for less.', corr_id: '', retryable: false}}))
  await page.getByLabel('Words').fill('beyond')
  await page.getByRole('button', {name: 'Search', exact: true}).click()
  await page.getByText('The offset is too large').waitFor() // and not that search is off
  await page.getByRole('radio', {name: 'Feed'}).click()
  await page.getByLabel('User').fill('ann')
  await page.getByRole('button', {name: 'Show the feed'}).click()
  await page.getByLabel('Post').fill('Good morning')
  await page.getByRole('button', {name: 'Post', exact: true}).click()
  await page.getByText('Good morning').waitFor()
  clean(page)
  await page.context().close()
})

test('empty places teach with one command', async () => {
  for (const [place, text] of [['content', 'Nothing is stored yet'], ['map', 'This node serves no map yet'], ['network', 'This node knows no other node'], ['registry', 'There is no registry yet'], ['cache', 'Nothing was asked of an origin yet'], ['messages/search', 'Search is off'], ['messages/feed', 'The feed is off']]) {
    const empty = place === 'content' ? start() : bare
    const page = await opened(`/ui/${place}`, undefined, empty)
    await page.getByText(text).waitFor()
    assert.ok(await page.locator('.empty .command').count() >= 1, place)
    clean(page)
    await page.context().close()
    if (empty !== bare) empty.stop()
  }
})

test('everything is reached by keyboard alone', async () => {
  const page = await opened('/ui/')
  await page.keyboard.press('Tab')
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the content')
  const seen = new Set()
  for (let i = 0; i < 14; i++) { await page.keyboard.press('Tab'); seen.add(await page.evaluate(() => document.activeElement.textContent || document.activeElement.getAttribute('aria-label'))) }
  for (const name of ['Overview', 'Content', 'Map', 'Network', 'Registry', 'Cache', 'Settings', 'Messages']) assert.ok(seen.has(name), name)
  await page.keyboard.press('/')
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('type')), 'search')
  await page.keyboard.type('name:docs')
  await page.keyboard.press('Enter')
  await page.locator('dialog.drawer').waitFor()
  assert.ok(await page.evaluate(() => document.querySelector('dialog.drawer').contains(document.activeElement)), 'the focus is in the drawer')
  await page.keyboard.press('Escape')
  await page.locator('dialog.drawer').waitFor({state: 'detached'})
  clean(page)
  await page.context().close()
})

const axe = readFileSync(new URL('../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8')

for (const colorScheme of ['light', 'dark']) for (const width of [1280, 390]) test(`every place and drawer is without violations of accessibility, ${colorScheme}, ${width} wide`, async () => {
  const page = await opened('/ui/', {colorScheme, bypassCSP: true, reducedMotion: 'reduce', viewport: {width, height: 900}})
  await page.getByText('This node', {exact: true}).waitFor()
  await page.evaluate(axe)
  const look = async where => {
    const {violations} = await page.evaluate(() => window.axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}))
    assert.deepEqual(violations.map(one => `${where}: ${one.id}: ${one.nodes.map(n => n.target + ' ' + (n.any[0]?.message ?? '')).slice(0, 3).join('; ')}`), [])
  }
  for (const place of [...places, 'content/name:docs', `network/${other.status.peer_id}`, 'network/' + 'a'.repeat(52), 'registry/0']) {
    await visit(page, place)
    if (place.includes('/') && !place.startsWith('map')) await page.locator('dialog.drawer').waitFor()
    if (place === 'registry/0') {
      await page.getByRole('button', {name: 'Check the proof in this browser'}).click()
      await page.getByText('Not checked: that these are the registry').waitFor()
    }
    await look(place)
  }
  const id = propose([pointTo('accessible', 'bb')])
  sealedKey()
  await visit(page, 'registry')
  await rowOf(page, id).getByRole('button', {name: 'Approve with a key file'}).click()
  await page.getByText('You sign this, and nothing else').waitFor()
  await page.getByLabel('Key file, which stays in this browser').setInputFiles(join(folder, 'sealed.key'))
  await page.getByText('This key file is encrypted').waitFor()
  await look('approving')
  clean(page)
  await page.context().close()
})

test('four widths, two themes: nothing is cut off or wider than the window', async () => {
  const page = await opened('/ui/')
  await page.getByText('This node', {exact: true}).waitFor()
  for (const colorScheme of ['light', 'dark']) for (const [width, height] of [[390, 844], [768, 1024], [1280, 900], [2560, 1300]]) {
    await page.emulateMedia({colorScheme})
    await page.setViewportSize({width, height})
    for (const place of places) {
      await visit(page, place)
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${place} at ${width}`)
    }
  }
  clean(page)
  await page.context().close()
})

test('a page of another origin reads nothing, frames nothing, and rebinding is refused', async () => {
  const foreign = createServer((request, answer) => answer.setHeader('Content-Type', 'text/html').end(`<!doctype html><title>foreign</title><iframe src="${node.url}/ui/"></iframe>`))
  await new Promise(done => foreign.listen(0, '127.0.0.1', done))
  const page = await open({elsewhere: true})
  await page.goto(`http://127.0.0.1:${foreign.address().port}/`)
  for (const path of ['/ui/', '/readyz', '/edge/packs', '/admin/config']) {
    assert.equal(await page.evaluate(url => fetch(url).then(() => 'read', () => 'refused'), node.url + path), 'refused', path)
  }
  const blind = await page.evaluate(url => fetch(url, {method: 'POST', body: '{"code":"x"}', headers: {'Content-Type': 'text/plain'}, mode: 'no-cors'}).then(answer => answer.type, () => 'refused'), node.url + '/ui/session')
  assert.ok(['opaque', 'refused'].includes(blind), blind) // opaque where the resource policy of the answer is not looked at
  assert.ok(!page.frames().some(frame => frame.url().includes('/ui/') && frame !== page.mainFrame()), 'the frame was filled')
  foreign.close()
  const {hostname, port} = new URL(node.url)
  const status = await new Promise(done => import('node:http').then(({get}) => get({hostname, port, path: '/ui/', headers: {Host: `rebound.example:${port}`}}, answer => { answer.resume(); done(answer.statusCode) })))
  assert.equal(status, 403)
  await page.context().close()
})

test('it is small and quick', async context => {
  // Interactive: the place is drawn with the data of the node, and answers a key. The machine may be busy, so the best of five counts.
  let best = Infinity
  for (let attempt = 1; attempt <= 5 && best >= 1000; attempt++) {
    const page = await open()
    const session = await page.context().newCDPSession(page)
    await session.send('Emulation.setCPUThrottlingRate', {rate: 4})
    await session.send('Network.enable')
    let sent = 0
    session.on('Network.loadingFinished', event => { sent += event.encodedDataLength })
    await page.addInitScript(() => new MutationObserver((_, watch) => {
      if (!document.querySelector('.facts')) return
      watch.disconnect()
      requestAnimationFrame(() => setTimeout(() => { window.interactive = performance.now() }))
    }).observe(document, {childList: true, subtree: true}))
    await page.goto(linkTo(node))
    await page.getByText('This node', {exact: true}).waitFor()
    const ready = await page.waitForFunction(() => window.interactive).then(value => value.jsonValue())
    best = Math.min(best, ready)
    await session.send('HeapProfiler.collectGarbage')
    const heap = await page.evaluate(() => performance.memory.usedJSHeapSize)
    context.diagnostic(`interactive after ${Math.round(ready)} ms at a quarter of the speed; ${sent} bytes sent; ${(heap / 1e6).toFixed(1)} MB of heap`)
    assert.ok(sent < 70_000, `${sent} bytes`) // with the data of the node
    assert.ok(heap < 30e6)
    clean(page)
    await page.context().close()
  }
  assert.ok(best < 1000, `interactive after ${Math.round(best)} ms at best, at a quarter of the speed`)
})

test('the shapes that the page reads are those of the OpenAPI document', async () => {
  const {components: {schemas}} = await (await fetch(node.url + '/openapi.json')).json()
  const outside = ['Snapshot', 'NodeEvent', 'TileJSON', 'BundleRecord', 'Bundle'] // of the stream, of standards, of files
  const file = ts.createSourceFile('types.ts', readFileSync(new URL('../src/node/types.ts', import.meta.url), 'utf8'), ts.ScriptTarget.ES2022)
  const wrong = []
  for (const {name, members} of file.statements.filter(ts.isInterfaceDeclaration)) {
    const shape = name.text === 'Setting' ? 'Entry' : name.text, schema = schemas[shape]
    if (!schema && !outside.includes(shape)) wrong.push(`${shape} is not in the document`)
    for (const one of schema ? members : []) {
      if (!schema.properties[one.name.text]) wrong.push(`${shape}.${one.name.text} is not in the document`)
      else if (!one.questionToken && !schema.required.includes(one.name.text)) wrong.push(`${shape}.${one.name.text} may be absent`)
    }
  }
  assert.deepEqual(wrong, [])
})

test('the files in the binary are those of the folder', async () => {
  const html = await (await fetch(node.url + '/ui/')).text()
  const digest = text => createHash('sha256').update(text).digest('hex')
  assert.equal(digest(html), digest(readFileSync(new URL('../../internal/page/dist/index.html', import.meta.url), 'utf8')))
})
