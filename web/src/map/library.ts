// The map library, loaded when the first map is shown. It stays as it was published: its worker is a file beside it.
import type * as MapLibre from 'maplibre-gl'

let loading: Promise<typeof MapLibre> | undefined

export function library(): Promise<typeof MapLibre> {
  loading ??= (import(MAP_LIBRARY) as Promise<typeof MapLibre>).then(lib => {
    lib.setWorkerUrl(MAP_WORKER)
    return lib
  }).catch(error => {
    loading = undefined
    throw error
  })
  return loading
}
