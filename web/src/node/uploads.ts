// Files on their way into the node. What was stored before an interruption is
// found by its address and not sent again.
import {headers, Problem, problemOf, send, type ProblemDocument} from './api'
import {addressOf} from './hash'
import {encodeManifest, typeOf, type Entry} from './manifest'
import {store} from './store'

export interface Upload {
  id: number
  name: string
  files: File[]
  paths: string[] // of the files in the folder; empty for a single file
  step: 'hashing' | 'sending' | 'done' | 'failed' | 'cancelled'
  done: number // bytes, of the step
  size: number
  address?: string
  skipped: number // files that were there already
  problem?: ProblemDocument
}

export const uploads = store<Upload[]>([])
const running = new Map<number, AbortController>()
let last = 0

function change(id: number, part: Partial<Upload>) {
  uploads.set(uploads.get().map(one => one.id === id ? {...one, ...part} : one))
}

/** Puts a file, or a folder as a manifest. */
export function put(name: string, files: File[], paths: string[] = []) {
  const id = ++last
  uploads.set([{id, name, files, paths, step: 'hashing', done: 0, size: files.reduce((all, one) => all + one.size, 0), skipped: 0}, ...uploads.get()])
  void run(id)
}

export function retry(id: number) { void run(id) }
export function cancel(id: number) { running.get(id)?.abort() }
export function dismiss(id: number) { cancel(id); uploads.set(uploads.get().filter(one => one.id !== id)) }

async function run(id: number) {
  const upload = uploads.get().find(one => one.id === id)!
  const stop = new AbortController()
  running.set(id, stop)
  try {
    const entries: Entry[] = []
    let before = 0, skipped = 0
    for (const [i, file] of upload.files.entries()) {
      change(id, {step: 'hashing', done: before, problem: undefined})
      const address = await addressOf(file.stream(), n => change(id, {done: before + n}), stop.signal)
      change(id, {step: 'sending', done: before})
      if (await isThere(address, stop.signal)) skipped++
      else await sendBody(file, address, n => change(id, {done: before + n}), stop.signal)
      before += file.size
      const path = (upload.paths[i] ?? file.name).normalize('NFC')
      entries.push({b3: address, path, size: file.size, type: typeOf(path)})
      change(id, {skipped})
    }
    let address = entries[0]!.b3
    if (upload.paths.length) {
      const manifest = new Blob([encodeManifest(entries)])
      address = await addressOf(manifest.stream(), () => {}, stop.signal)
      await sendBody(manifest, address, () => {}, stop.signal)
    }
    change(id, {step: 'done', done: upload.size, address})
  } catch (error) {
    change(id, stop.signal.aborted ? {step: 'cancelled'} : {step: 'failed', problem: problemOf(error)})
  } finally {
    running.delete(id)
  }
}

async function isThere(address: string, signal: AbortSignal): Promise<boolean> {
  try {
    await send('HEAD', `/o/${address}`, undefined, {}, signal)
    return true
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return false
    throw error
  }
}

/** Sends a body by XMLHttpRequest, which tells how much of it was sent. */
function sendBody(body: Blob, address: string, progress: (bytes: number) => void, signal: AbortSignal): Promise<void> {
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest()
    request.open('POST', `/o?want=${address}`)
    for (const [name, value] of Object.entries(headers({'Content-Type': 'application/octet-stream'}))) request.setRequestHeader(name, value)
    request.upload.onprogress = event => progress(event.loaded)
    request.onload = () => {
      if (request.status < 300) return done()
      try {
        fail(new Problem(JSON.parse(request.responseText)))
      } catch {
        fail(new Error(`status ${request.status}`))
      }
    }
    request.onerror = () => fail(new Error('the connection broke'))
    request.onabort = () => fail(new DOMException('cancelled', 'AbortError'))
    signal.addEventListener('abort', () => request.abort(), {once: true})
    request.send(body)
  })
}

/** What was dropped: files, and folders with everything in them. */
export async function fromDrop(items: DataTransferItemList): Promise<void> {
  const entries = [...items].map(one => one.webkitGetAsEntry()).filter(one => one !== null)
  for (const entry of entries) {
    if (entry.isFile) put(entry.name, [await fileOf(entry as FileSystemFileEntry)])
    else {
      const files: File[] = [], paths: string[] = []
      await walk(entry as FileSystemDirectoryEntry, '', files, paths)
      if (files.length) put(entry.name, files, paths)
    }
  }
}

const fileOf = (entry: FileSystemFileEntry) => new Promise<File>((done, fail) => entry.file(done, fail))

async function walk(folder: FileSystemDirectoryEntry, prefix: string, files: File[], paths: string[]) {
  const reader = folder.createReader()
  for (; ;) { // a call gives a hundred entries at most
    const some = await new Promise<FileSystemEntry[]>((done, fail) => reader.readEntries(done, fail))
    if (!some.length) return
    for (const one of some) {
      if (one.isDirectory) await walk(one as FileSystemDirectoryEntry, `${prefix}${one.name}/`, files, paths)
      else {
        files.push(await fileOf(one as FileSystemFileEntry))
        paths.push(prefix + one.name)
      }
    }
  }
}
