// Pictures of the page: the two of the README into the folder that is named, and with --all every place at four widths, light and dark.
import {mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {argv} from 'node:process'
import {deflateSync, inflateSync, crc32} from 'node:zlib'
import {linkTo, open, places, prepare, settled, stopAll, visit} from './nodes.mjs'

const to = process.env.PICTURES ?? '../docs', all = argv[2]
const largest = 400_000 // bytes
mkdirSync(to, {recursive: true})
const {node} = prepare()
const page = await open({viewport: {width: 1280, height: 800}, reducedMotion: 'reduce'})
let stop = false
const load = (async () => { // so that the lines of the last two minutes show something
  for (let i = 0; !stop; i++) {
    await Promise.allSettled(Array.from({length: 4 + i * 7 % 9}, () => fetch(node.url + '/edge/packs').then(answer => answer.arrayBuffer())))
    await new Promise(done => setTimeout(done, 150))
  }
})()
await page.goto(linkTo(node))
await page.getByText('This node', {exact: true}).waitFor()

if (all === '--all') {
  for (const [width, height] of [[1280, 900], [390, 844], [768, 1024], [2560, 1300]]) for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({colorScheme})
    await page.setViewportSize({width, height})
    for (const place of [...places, 'content/name:docs', 'registry/0', 'messages/search']) {
      await visit(page, place)
      if (place === 'registry/0') await page.getByRole('button', {name: 'Check the proof in this browser'}).click()
      await settled(page)
      await picture(`${place.replaceAll(/[/:]/g, '-') || 'overview'}-${width}-${colorScheme}`)
    }
  }
} else {
  let snapshots = 0
  await page.exposeFunction('snapshotShown', () => snapshots++)
  await page.evaluate(() => new MutationObserver(() => window.snapshotShown()).observe(document.querySelector('.numbers'), {subtree: true, childList: true, characterData: true}))
  while (snapshots < 30) await page.waitForTimeout(500)
  await picture('page-overview')
  await visit(page, 'map/lindach')
  await page.emulateMedia({colorScheme: 'dark'})
  await visit(page, 'map/lindach')
  await picture('page-map')
}
stop = true
await load
await stopAll()

async function picture(name) {
  const png = smaller(await page.screenshot())
  console.log(`${name}.png ${png.length} bytes`)
  if (!all && png.length > largest) throw new Error(`${name}.png is larger than ${largest} bytes`)
  writeFileSync(join(to, `${name}.png`), png)
}

/** The same picture, compressed as well as zlib can, without what is not pixels. */
function smaller(png) {
  const parts = new Map()
  for (let at = 8; at < png.length;) {
    const length = png.readUInt32BE(at), type = png.toString('latin1', at + 4, at + 8)
    parts.set(type, Buffer.concat([parts.get(type) ?? Buffer.alloc(0), png.subarray(at + 8, at + 8 + length)]))
    at += length + 12
  }
  parts.set('IDAT', deflateSync(inflateSync(parts.get('IDAT')), {level: 9, memLevel: 9}))
  const chunk = type => {
    const body = Buffer.concat([Buffer.from(type, 'latin1'), parts.get(type)]), length = Buffer.alloc(4), sum = Buffer.alloc(4)
    length.writeUInt32BE(parts.get(type).length)
    sum.writeUInt32BE(crc32(body))
    return Buffer.concat([length, body, sum])
  }
  return Buffer.concat([png.subarray(0, 8), ...['IHDR', 'IDAT', 'IEND'].map(chunk)])
}
