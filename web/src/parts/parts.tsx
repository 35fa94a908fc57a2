// The small things that the places are made of.
import type {ComponentChildren, JSX} from 'preact'
import {useEffect, useRef, useState} from 'preact/hooks'
import {ago, exact, short} from '../format'
import type {ProblemDocument} from '../node/api'
import {Icon} from './icons'

async function copyText(text: string) {
  try {
    await navigator.clipboard.writeText(text)
  } catch { // pages over plain HTTP from another machine have no clipboard
    const field = document.createElement('textarea')
    field.value = text
    document.body.append(field)
    field.select()
    document.execCommand('copy')
    field.remove()
  }
}

function useCopied(): [boolean, (text: string) => void] {
  const [copied, setCopied] = useState(false)
  const timer = useRef(0)
  useEffect(() => () => clearTimeout(timer.current), [])
  return [copied, text => {
    void copyText(text).then(() => {
      setCopied(true)
      clearTimeout(timer.current)
      timer.current = window.setTimeout(() => setCopied(false), 1500)
    })
  }]
}

/** An address, shortened in the middle, copied whole by a click. */
export function Address({text, what = 'address', head, tail}: {text: string; what?: string; head?: number; tail?: number}) {
  const [copied, copy] = useCopied()
  return <button type="button" class="address" title={text} aria-label={`${short(text, head, tail)}: copy the ${what}${copied ? '. Copied' : ''}`} onClick={() => copy(text)}>
    <code>{short(text, head, tail)}</code><Icon name={copied ? 'done' : 'copy'} /><span class="aside" aria-live="polite">{copied ? 'Copied' : ''}</span>
  </button>
}

/** A command to type, with a button that copies it. */
export function Command({text}: {text: string}) {
  const [copied, copy] = useCopied()
  return <div class="command">
    <code tabIndex={0} role="group" aria-label="Command">{text}</code>
    <button type="button" class="quiet" onClick={() => copy(text)} aria-label={copied ? 'Copied' : 'Copy the command'}><Icon name={copied ? 'done' : 'copy'} /><span aria-live="polite">{copied ? 'Copied' : 'Copy'}</span></button>
  </div>
}

/** Text of several lines, such as code for a map, with a button that copies it. */
export function Snippet({text, label}: {text: string; label: string}) {
  const [copied, copy] = useCopied()
  return <div class="snippet">
    <pre tabIndex={0} role="group" aria-label={label}>{text}</pre>
    <button type="button" class="quiet" onClick={() => copy(text)} aria-label={copied ? 'Copied' : `Copy: ${label}`}><Icon name={copied ? 'done' : 'copy'} />{copied ? 'Copied' : 'Copy'}</button>
  </div>
}

export function Ago({at}: {at: string | number}) {
  return <time dateTime={new Date(at).toISOString()} title={exact(at)}>{ago(at)}</time>
}

export type Signal = 'good' | 'warn' | 'bad' | 'none'

/** A state: a shape and a word, and a colour that only repeats them. */
export function State({signal, children}: {signal: Signal; children: ComponentChildren}) {
  return <span class={`state ${signal}`}><svg viewBox="0 0 12 12" aria-hidden="true">{shapes[signal]}</svg>{children}</span>
}
const shapes: Record<Signal, JSX.Element> = {
  good: <circle cx="6" cy="6" r="4.5" />,
  warn: <path d="M6 1.200 11.300 10.800H.700Z" />,
  bad: <path d="M6 .500 11.500 6 6 11.500.500 6Z" />,
  none: <circle cx="6" cy="6" r="3.700" fill="none" stroke="currentColor" stroke-width="1.600" />,
}

/** What was refused, why, and what to do next. */
export function ProblemNote({problem}: {problem: ProblemDocument}) {
  return <div class="note problem" role="alert">
    <strong>{problem.title}</strong>
    {problem.detail && <p>{sentence(problem.detail)}</p>}
    {problem.next && <p class="next">{problem.next}</p>}
    {problem.corr_id && <p class="muted small">Correlation ID <Address text={problem.corr_id} what="correlation ID" /></p>}
  </div>
}

const sentence = (text: string) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.')

/** A place without anything in it: what it is, one command, one button. */
export function Empty({icon, title, text, command, children}: {icon: string; title: string; text: string; command?: string; children?: ComponentChildren}) {
  return <div class="empty">
    <span class="disc"><Icon name={icon} /></span>
    <h3>{title}</h3>
    <p>{text}</p>
    {command && <Command text={command} />}
    {children && <div class="actions">{children}</div>}
  </div>
}

/** A section with a heading, one border and no shadow. */
export function Section({title, aside, children, id}: {title: string; aside?: ComponentChildren; children: ComponentChildren; id?: string}) {
  return <section class="section" aria-labelledby={id ?? slug(title)}>
    <header><h2 id={id ?? slug(title)}>{title}</h2>{aside && <div class="aside-row">{aside}</div>}</header>
    {children}
  </section>
}
const slug = (text: string) => 'h-' + text.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-')

/** A drawer from the right. Escape and a click beside it close it; the focus returns to where it was. */
export function Drawer({title, onClose, children}: {title: string; onClose: () => void; children: ComponentChildren}) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    const shown = dialog.current!
    if (!shown.open) shown.showModal()
    return () => shown.close()
  }, [])
  return <dialog ref={dialog} class="drawer" aria-label={title} onCancel={event => { event.preventDefault(); onClose() }}
    onClick={event => { if (event.target === dialog.current) onClose() }}>
    <div class="drawer-inner">
      <header><h2>{title}</h2><button type="button" class="quiet icon-only" onClick={onClose} aria-label="Close"><Icon name="close" /></button></header>
      {children}
    </div>
  </dialog>
}

/** Names and values. */
export function Facts({list}: {list: [string, ComponentChildren][]}) {
  return <dl class="facts">{list.filter(([, value]) => value != null && value !== '' && value !== false).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
}

/** A choice among a few. */
export function Tabs<T extends string>({label, value, options, onChange}: {label: string; value: T; options: [T, string][]; onChange: (value: T) => void}) {
  return <div class="tabs" role="radiogroup" aria-label={label}>
    {options.map(([key, text]) => <button key={key} type="button" role="radio" aria-checked={key === value} onClick={() => onChange(key)}>{text}</button>)}
  </div>
}

/** A dangerous thing is typed, not clicked. */
export function Typed({word, verb, onConfirm}: {word: string; verb: string; onConfirm: () => void}) {
  const [text, setText] = useState('')
  return <form class="typed" onSubmit={event => { event.preventDefault(); if (text === word) onConfirm() }}>
    <label>Type <code>{word}</code> to {verb.toLowerCase()} it<input value={text} onInput={event => setText(event.currentTarget.value)} autocomplete="off" spellcheck={false} /></label>
    <button type="submit" class="danger" disabled={text !== word}>{verb}</button>
  </form>
}
