// A line of the last two minutes, and a bar against a bound. Both say in words what they show.
import {useEffect, useRef} from 'preact/hooks'
import {count} from '../format'

export function Spark({values, label, tone = 'accent'}: {values: number[]; label: string; tone?: 'accent' | 'bad'}) {
  const canvas = useRef<HTMLCanvasElement>(null)
  useEffect(() => {
    const on = canvas.current!
    const draw = () => drawLine(on, values, tone)
    draw()
    const sized = new ResizeObserver(draw)
    sized.observe(on)
    const dark = matchMedia('(prefers-color-scheme: dark)')
    dark.addEventListener('change', draw)
    return () => { sized.disconnect(); dark.removeEventListener('change', draw) }
  }, [values, tone])
  return <canvas ref={canvas} class="spark" role="img" aria-label={label} />
}

const moments = 60

function drawLine(on: HTMLCanvasElement, values: number[], tone: string) {
  const scale = devicePixelRatio || 1, width = on.clientWidth, height = on.clientHeight
  if (!width || !height) return
  on.width = width * scale
  on.height = height * scale
  const pen = on.getContext('2d')!
  pen.scale(scale, scale)
  const style = getComputedStyle(on)
  const known = values.filter(value => !Number.isNaN(value))
  const top = Math.max(...known, 0) * 1.15 || 1
  const x = (i: number) => width - 1 - (values.length - 1 - i) * (width - 2) / (moments - 1)
  const y = (value: number) => height - 1.5 - (Number.isNaN(value) ? 0 : value) / top * (height - 4)
  pen.strokeStyle = style.getPropertyValue('--line')
  pen.beginPath(); pen.moveTo(0, height - .5); pen.lineTo(width, height - .5); pen.stroke()
  if (values.length < 2) return
  const colour = style.getPropertyValue(tone === 'bad' ? '--bad' : '--accent')
  pen.beginPath()
  values.forEach((value, i) => i ? pen.lineTo(x(i), y(value)) : pen.moveTo(x(i), y(value)))
  pen.strokeStyle = colour
  pen.lineWidth = 1.5
  pen.lineJoin = 'round'
  pen.stroke()
  pen.lineTo(x(values.length - 1), height)
  pen.lineTo(x(0), height)
  pen.globalAlpha = .1
  pen.fillStyle = colour
  pen.fill()
}

/** A thin bar: against a bound, amber from 70 per cent and red when it refuses; a share of a whole is only longer or shorter. */
export function Bar({value, max, label, refusing = false, share = false, text}: {value: number; max: number; label: string; refusing?: boolean; share?: boolean; text?: string}) {
  const part = max > 0 ? Math.min(1, value / max) : 0
  const tone = share ? 'good' : refusing || part >= 1 ? 'bad' : part >= 0.7 ? 'warn' : 'good'
  return <span class={`bar ${tone}`} role="meter" aria-label={label} aria-valuenow={value} aria-valuemin={0} aria-valuemax={max} aria-valuetext={text ?? `${count(value)} of ${count(max)}`}>
    <span style={{transform: `scaleX(${part})`}} />
  </span>
}
