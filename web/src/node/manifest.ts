// A folder as one object: the same bytes that `micronode put DIR` makes.

export interface Entry { b3: string; path: string; size: number; type: string; exec?: boolean }

// The media types by the endings of names, as the client library has them.
const types: Record<string, string> = {}
for (const line of `text css,csv,html=html htm,calendar=ics,javascript=js mjs,markdown=md,plain=txt,x-shellscript=sh
application octet-stream=bin,x-brotli=br,x-bzip2=bz2,cbor,epub+zip=epub,geo+json=geojson,gpx+xml=gpx,gzip=gz,json=json map,ld+json=jsonld,vnd.sqlite3=mbtiles,x-ndjson=ndjson,x-protobuf=pbf,pdf,vnd.pmtiles=pmtiles,x-tar=tar,toml,wasm,manifest+json=webmanifest,xml,x-xz=xz,yaml=yaml yml,zip,zstd=zst,x-7z-compressed=7z
audio aac,flac,mp4=m4a,mpeg=mp3,ogg=oga ogg opus,wav
video mp4,ogg=ogv,webm
image avif,bmp,gif,vnd.microsoft.icon=ico,jpeg=jpeg jpg,png,svg+xml=svg,tiff=tif tiff,webp
font otf,ttf,woff,woff2`.split('\n')) {
  const [family, list] = line.split(' ', 1).concat(line.slice(line.indexOf(' ') + 1)) as [string, string]
  for (const one of list.split(',')) {
    const [name, endings = name] = one.split('=') as [string, string?]
    for (const ending of endings.split(' ')) types['.' + ending] = `${family}/${name}${family === 'text' ? '; charset=utf-8' : ''}`
  }
}

export function typeOf(path: string): string {
  return types[/\.[^./]*$/.exec(path.toLowerCase())?.[0] ?? ''] ?? 'application/octet-stream'
}

const encoder = new TextEncoder()

function byBytes(a: Entry, b: Entry): number {
  const x = encoder.encode(a.path), y = encoder.encode(b.path)
  for (let i = 0; i < Math.min(x.length, y.length); i++) if (x[i] !== y[i]) return x[i]! - y[i]!
  return x.length - y.length
}

export function encodeManifest(entries: Entry[]): string {
  const list = entries.toSorted(byBytes).map(one => JSON.stringify({b3: one.b3, ...(one.exec ? {exec: true} : {}), path: one.path, size: one.size, type: one.type}))
  return `{"entries":[${list.join(',')}],"type":"micronode manifest v1"}`
}

/** The entries of a manifest; undefined if the text is none. */
export function decodeManifest(text: string): Entry[] | undefined {
  if (!text.startsWith('{"entries":[') || !text.endsWith('],"type":"micronode manifest v1"}')) return undefined
  try {
    return (JSON.parse(text) as {entries: Entry[]}).entries
  } catch {
    return undefined
  }
}
