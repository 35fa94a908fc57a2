// Reading something once, and again when it may have changed.
import {useCallback, useEffect, useRef, useState} from 'preact/hooks'
import {problemOf, read, type ProblemDocument} from './api'
import {session} from './session'
import {useStore} from './store'

export interface Loaded<T> { value?: T; problem?: ProblemDocument; loading: boolean; again: () => void }

/**
 * Reads a path of the node; undefined reads nothing. With every, it is read again after so many milliseconds, unless the page
 * is hidden. The old value stays until there is a new one.
 */
export function useLoad<T>(path: string | undefined, every = 0): Loaded<T> {
  const token = useStore(session)?.token
  const [state, setState] = useState<{path?: string; value?: T; problem?: ProblemDocument; loading: boolean}>({loading: true})
  const [turn, setTurn] = useState(0)
  const again = useCallback(() => setTurn(n => n + 1), [])
  const shown = useRef(path)
  useEffect(() => {
    if (path === undefined) return setState({loading: false})
    const stop = new AbortController()
    if (shown.current !== path) setState({loading: true})
    shown.current = path
    read<T>(path, stop.signal).then(
      value => setState({path, value, loading: false}),
      error => { if (!stop.signal.aborted) setState({path, problem: problemOf(error), loading: false}) },
    )
    return () => stop.abort()
  }, [path, token, turn])
  useEffect(() => {
    if (!every) return
    const timer = setInterval(() => { if (!document.hidden) again() }, every)
    return () => clearInterval(timer)
  }, [every, again])
  return {value: state.value, problem: state.problem, loading: state.loading, again}
}
