// How a page without a capability gets one.
import {useState} from 'preact/hooks'
import type {ProblemDocument} from '../node/api'
import {live} from '../node/live'
import {session} from '../node/session'
import {useStore} from '../node/store'
import {Icon} from './icons'
import {Command, ProblemNote} from './parts'

/** What a visitor without a capability sees where the inside of the node would be. */
export function Access({what, problem}: {what: string; problem?: ProblemDocument}) {
  const [text, setText] = useState('')
  const known = useStore(session)
  const refusal = useStore(live).refusal ?? problem
  return <div class="access">
    <span class="disc"><Icon name="key" /></span>
    <h2>{known ? 'This capability does not allow it' : 'Open it with a capability'}</h2>
    <p>{what} On the machine of the node, this makes a link that works once:</p>
    <Command text="micronode ui" />
    {refusal && <ProblemNote problem={refusal} />}
    <form onSubmit={event => { event.preventDefault(); if (text.trim()) { session.set({token: text.trim()}); setText('') } }}>
      <label for="capability">Or paste a capability of <code>micronode token mint</code></label>
      <div class="field-row">
        <input id="capability" type="password" autocomplete="off" placeholder="mn1_…" value={text} onInput={event => setText(event.currentTarget.value)} />
        <button type="submit" class="primary">Use it</button>
      </div>
    </form>
    <p class="muted small">It stays in the memory of this page. Nothing is stored, and a reload forgets it.</p>
  </div>
}
