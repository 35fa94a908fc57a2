// The icons, drawn on 20 by 20 with one stroke. They stand beside words, and are hidden from screen readers.
const paths: Record<string, string> = {
  overview: 'M3 11a7 7 0 0 1 14 0M10 11l3.5-3.5M4.5 15.5h11',
  content: 'M10 2.8 16.5 6.4v7.2L10 17.2 3.5 13.6V6.4ZM3.7 6.5 10 10l6.3-3.5M10 10v7',
  map: 'M7.5 4 3 6v10.5l4.5-2 5 2 4.5-2V4l-4.5 2ZM7.5 4v10.5M12.5 6v10.5',
  network: 'M10 6.5v3M8.600 10.800 5.700 13.400M11.400 10.800l2.900 2.600M10 6.5a1.750 1.750 0 1 0 0-3.5 1.750 1.750 0 0 0 0 3.5ZM4.5 16.5a1.750 1.750 0 1 0 0-3.5 1.750 1.750 0 0 0 0 3.5ZM15.5 16.5a1.750 1.750 0 1 0 0-3.5 1.750 1.750 0 0 0 0 3.5Z',
  registry: 'M5 3h7l3 3v11H5ZM12 3v3h3M7.5 10.5l1.700 1.700 3.300-3.5',
  cache: 'M3.5 5.5c0-3 13-3 13 0s-13 3-13 0v9c0 3 13 3 13 0v-9M3.5 10c0 3 13 3 13 0',
  settings: 'M3 6h7M14 6h3M3 14h3M10 14h7M12 8a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM8 16a2 2 0 1 0 0-4 2 2 0 0 0 0 4Z',
  messages: 'M3 5h14v9H9l-3.5 3v-3H3Z',
  copy: 'M7 7h9v9H7ZM4 13V4h9',
  done: 'M4 10.5l4 4 8-9',
  close: 'M5 5l10 10M15 5 5 15',
  search: 'M9 14A5 5 0 1 0 9 4a5 5 0 0 0 0 10ZM12.700 12.700 17 17',
  upload: 'M10 13V4M6.5 7.5 10 4l3.5 3.5M4 13v3.5h12V13',
  key: 'M12.5 11.5a4 4 0 1 0-3.400-1.900L3.5 15.200v1.600h2.200v-1.700h1.700v-1.700h1.5l1.300-1.300a4 4 0 0 0 2.300.400ZM13.300 6.700v.010',
  plus: 'M10 4v12M4 10h12',
  minus: 'M4 10h12',
  open: 'M11 4h5v5M16 4l-7 7M8 5H4v11h11v-4',
}

export function Icon({name}: {name: string}) {
  return <svg class="icon" viewBox="0 0 20 20" aria-hidden="true"><path d={paths[name] ?? ''} /></svg>
}
