// QR codes (ISO/IEC 18004): bytes, level M, versions 1 to 10. An address with its host fits.

// For each version: error correction bytes of a block, and the number of blocks.
const blocks: [number, number][] = [[10, 1], [16, 1], [26, 1], [18, 2], [24, 2], [16, 4], [18, 4], [22, 4], [22, 5], [26, 5]]

export function QR({text}: {text: string}) {
  const cells = encode(new TextEncoder().encode(text))
  if (!cells) return null
  const path = cells.flatMap((row, y) => row.map((dark, x) => dark ? `M${x} ${y}h1v1h-1z` : '')).join('')
  const size = cells.length
  return <svg class="qr" viewBox={`-4 -4 ${size + 8} ${size + 8}`} role="img" aria-label={`QR code of ${text}`}>
    <rect x="-4" y="-4" width={size + 8} height={size + 8} fill="#fff" /><path d={path} fill="#000" />
  </svg>
}

// The field of 256 elements in which the error correction computes.
const exp = new Uint8Array(512), log = new Uint8Array(256)
for (let i = 0, x = 1; i < 255; i++) {
  exp[i] = exp[i + 255] = x
  log[x] = i
  x = x << 1 ^ (x & 128 ? 0x11d : 0)
}

function remainder(data: number[], degree: number): number[] {
  let generator = [1]
  for (let i = 0; i < degree; i++) {
    const next = [...generator, 0]
    generator.forEach((c, j) => { if (c) next[j + 1]! ^= exp[log[c]! + i]! })
    generator = next
  }
  const rest = [...data, ...new Array<number>(degree).fill(0)]
  for (let i = 0; i < data.length; i++) {
    const lead = rest[i]!
    if (lead) generator.forEach((c, j) => { if (c) rest[i + j]! ^= exp[log[lead]! + log[c]!]! })
  }
  return rest.slice(data.length)
}

/** How many bytes a version holds in all. */
function capacity(version: number): number {
  const alignments = version > 1 ? Math.floor(version / 7) + 2 : 0
  const modules = (16 * version + 128) * version + 64 - (alignments ? (25 * alignments - 10) * alignments - 55 : 0) - (version >= 7 ? 36 : 0)
  return modules >> 3
}

function encode(text: Uint8Array): boolean[][] | undefined {
  let version = 1
  const room = () => capacity(version) - blocks[version - 1]![0] * blocks[version - 1]![1]
  while (version <= 10 && text.length + (version > 9 ? 3 : 2) > room()) if (++version > 10) return undefined
  const bits: number[] = []
  const push = (value: number, n: number) => { while (n--) bits.push(value >> n & 1) }
  push(4, 4)
  push(text.length, version > 9 ? 16 : 8)
  for (const byte of text) push(byte, 8)
  push(0, Math.min(4, room() * 8 - bits.length))
  while (bits.length % 8) bits.push(0)
  const data: number[] = []
  for (let i = 0; i < bits.length; i += 8) data.push(parseInt(bits.slice(i, i + 8).join(''), 2))
  for (let pad = 0xec; data.length < room(); pad ^= 0xec ^ 0x11) data.push(pad)
  const [degree, number] = blocks[version - 1]!
  const shortest = Math.floor(data.length / number), long = data.length % number
  const parts: number[][] = []
  for (let i = 0, at = 0; i < number; i++) {
    const length = shortest + (i >= number - long ? 1 : 0)
    parts.push(data.slice(at, at += length))
  }
  const corrections = parts.map(one => remainder(one, degree))
  const stream: number[] = []
  for (let i = 0; i <= shortest; i++) for (const one of parts) if (i < one.length) stream.push(one[i]!)
  for (let i = 0; i < degree; i++) for (const one of corrections) stream.push(one[i]!)
  return draw(version, stream)
}

function draw(version: number, stream: number[]): boolean[][] {
  const size = version * 4 + 17
  const cells = Array.from({length: size}, () => new Array<boolean>(size).fill(false)), fixed = Array.from({length: size}, () => new Array<boolean>(size).fill(false))
  const set = (x: number, y: number, dark: boolean) => { if (x >= 0 && y >= 0 && x < size && y < size) { cells[y]![x] = dark; fixed[y]![x] = true } }
  for (let i = 0; i < size; i++) { set(6, i, i % 2 === 0); set(i, 6, i % 2 === 0) }
  for (const [cx, cy] of [[3, 3], [size - 4, 3], [3, size - 4]] as const)
    for (let y = -4; y <= 4; y++) for (let x = -4; x <= 4; x++) {
      const ring = Math.max(Math.abs(x), Math.abs(y))
      set(cx + x, cy + y, ring !== 2 && ring !== 4)
    }
  const centres = version === 1 ? [] : version < 7 ? [6, size - 7] : [6, version * 2 + 8, size - 7]
  for (const cy of centres) for (const cx of centres) {
    if (cx === 6 && (cy === 6 || cy === size - 7) || cy === 6 && cx === size - 7) continue // a corner has its own pattern
    for (let y = -2; y <= 2; y++) for (let x = -2; x <= 2; x++) set(cx + x, cy + y, Math.max(Math.abs(x), Math.abs(y)) !== 1)
  }
  const mask = 0
  let format = 0 << 3 | mask // level M is 00
  let rest = format
  for (let i = 0; i < 10; i++) rest = rest << 1 ^ (rest >> 9) * 0x537
  format = (format << 10 | rest) ^ 0x5412
  const bit = (i: number) => (format >> i & 1) === 1
  for (let i = 0; i <= 5; i++) set(8, i, bit(i))
  set(8, 7, bit(6)); set(8, 8, bit(7)); set(7, 8, bit(8))
  for (let i = 9; i < 15; i++) set(14 - i, 8, bit(i))
  for (let i = 0; i < 8; i++) set(size - 1 - i, 8, bit(i))
  for (let i = 8; i < 15; i++) set(8, size - 15 + i, bit(i))
  set(8, size - 8, true)
  if (version >= 7) {
    let rest = version
    for (let i = 0; i < 12; i++) rest = rest << 1 ^ (rest >> 11) * 0x1f25
    const bits = version << 12 | rest
    for (let i = 0; i < 18; i++) { const a = size - 11 + i % 3, b = Math.floor(i / 3); set(a, b, (bits >> i & 1) === 1); set(b, a, (bits >> i & 1) === 1) }
  }
  let i = 0
  for (let right = size - 1; right >= 1; right -= 2) {
    if (right === 6) right = 5
    for (let vertical = 0; vertical < size; vertical++) for (let j = 0; j < 2; j++) {
      const x = right - j, y = (right + 1 & 2) === 0 ? size - 1 - vertical : vertical
      if (fixed[y]![x]) continue
      const dark = i < stream.length * 8 && (stream[i >> 3]! >> 7 - (i & 7) & 1) === 1
      cells[y]![x] = dark !== ((x + y) % 2 === 0)
      i++
    }
  }
  return cells
}
