// Addresses of bytes, made in a worker while they stream by.

type Answer = {address?: string; taken?: number}

/** Hashes a stream; progress is told the bytes so far. */
export async function addressOf(stream: ReadableStream<Uint8Array>, progress: (bytes: number) => void, signal?: AbortSignal): Promise<string> {
  const worker = new Worker(HASH_WORKER, {type: 'module'})
  const ask = (message: Uint8Array | 'end', move: Transferable[] = []) => new Promise<Answer>((done, fail) => {
    worker.onmessage = (event: MessageEvent<Answer>) => done(event.data)
    worker.onerror = () => fail(new Error('the worker for BLAKE3 does not run'))
    worker.postMessage(message, move)
  })
  try {
    let bytes = 0
    for (const reader = stream.getReader(); ;) {
      signal?.throwIfAborted()
      const {value, done} = await reader.read()
      if (done) break
      bytes += value.length
      const own = value.byteLength === value.buffer.byteLength ? value : value.slice()
      await ask(own, [own.buffer])
      progress(bytes)
    }
    return (await ask('end')).address!
  } finally {
    worker.terminate()
  }
}
