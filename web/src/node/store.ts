// A value that many parts of the page show. It is kept once, here; who shows it
// subscribes and is drawn again when it changes.
import {useEffect, useState} from 'preact/hooks'

export interface Store<T> {
  get(): T
  set(next: T): void
  subscribe(listener: () => void): () => void
}

export function store<T>(initial: T): Store<T> {
  let value = initial
  const listeners = new Set<() => void>()
  return {
    get: () => value,
    set(next) {
      value = next
      for (const one of listeners) one()
    },
    subscribe(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
}

export function useStore<T>(of: Store<T>): T {
  const [, redraw] = useState({})
  useEffect(() => of.subscribe(() => redraw({})), [of])
  return of.get()
}
