// Numbers, sizes and times as people read them.

export function bytes(n: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let unit = 0
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit++ }
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`
}

const whole = new Intl.NumberFormat('en', {maximumFractionDigits: 0})
export const count = (n: number) => whole.format(n).replaceAll(',', '\u00a0')

export const rate = (n: number) => n === 0 ? '0' : n >= 100 ? count(n) : n >= 10 ? n.toFixed(0) : n.toFixed(1)

export function seconds(s: number): string {
  if (Number.isNaN(s)) return '–'
  if (s < 0.001) return `${Math.round(s * 1e6)} µs`
  if (s < 1) return `${+(s * 1000).toFixed(s < 0.01 ? 1 : 0)} ms`
  if (s < 90) return `${Math.round(s)} s`
  if (s < 5400) return `${Math.round(s / 60)} min`
  if (s < 129600) return `${Math.round(s / 3600)} h`
  return `${Math.round(s / 86400)} days`
}

export function ago(at: string | number, now = Date.now()): string {
  const s = (now - new Date(at).getTime()) / 1000
  return s < 2 && s > -2 ? 'just now' : s >= 0 ? `${seconds(s)} ago` : `in ${seconds(-s)}`
}

export const exact = (at: string | number) => new Date(at).toLocaleString()

/** An address or a key, shortened in the middle. */
export function short(text: string, head = 10, tail = 6): string {
  return text.length <= head + tail + 1 ? text : `${text.slice(0, head)}…${text.slice(-tail)}`
}
