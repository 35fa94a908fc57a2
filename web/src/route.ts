// Every state of the page has a URL: /ui/PLACE/WHAT?PARAMETERS.
import {store} from './node/store'

export interface Route { place: string; what: string; query: URLSearchParams }

const root = '/ui/'

function parse(): Route {
  const [place = '', ...what] = location.pathname.slice(root.length).split('/')
  return {place: place || 'overview', what: decodeURIComponent(what.join('/')), query: new URLSearchParams(location.search)}
}

export const route = store<Route>(parse())

export function href(place: string, what = '', query: Record<string, string> = {}): string {
  const text = new URLSearchParams(query).toString()
  return root + (place === 'overview' && !what ? '' : place) + (what ? '/' + encodeURIComponent(what).replaceAll('%3A', ':') : '') + (text ? '?' + text : '')
}

export function go(to: string, replace = false) {
  if (to === location.pathname + location.search) return
  history[replace ? 'replaceState' : 'pushState'](null, '', to)
  route.set(parse())
}

/** Links inside the page change its state and load nothing. */
export function listen() {
  window.addEventListener('popstate', () => route.set(parse()))
  document.addEventListener('click', event => {
    const link = (event.target as Element).closest?.('a')
    if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    if (link.target || link.origin !== location.origin || !link.pathname.startsWith(root) || link.pathname.endsWith('.txt')) return
    event.preventDefault()
    const from = parse().place
    go(link.pathname + link.search)
    if (parse().place !== from) window.scrollTo(0, 0)
  })
}
