// Server-sent events over fetch, because EventSource cannot send a capability.
import {headers, problemFrom} from './api'

export interface ServerEvent { name: string; data: string; id: string }

/** Calls back for each event until the stream ends, which is not an error. */
export async function readEvents(path: string, signal: AbortSignal, onEvent: (event: ServerEvent) => void, onOpen?: () => void): Promise<void> {
  const answer = await fetch(path, {headers: headers({Accept: 'text/event-stream'}), signal, credentials: 'omit', cache: 'no-store', redirect: 'error'})
  if (!answer.ok || !answer.body) throw await problemFrom(answer)
  onOpen?.()
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  for (let rest = ''; ;) {
    const {value, done} = await reader.read()
    if (done) return
    rest += value
    for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
      const event = {name: 'message', data: '', id: ''}
      for (const line of rest.slice(0, end).split('\n')) {
        if (line.startsWith('event: ')) event.name = line.slice(7)
        if (line.startsWith('id: ')) event.id = line.slice(4)
        if (line.startsWith('data: ')) event.data += (event.data ? '\n' : '') + line.slice(6)
      }
      rest = rest.slice(end + 2)
      if (event.data) onEvent(event)
    }
  }
}
