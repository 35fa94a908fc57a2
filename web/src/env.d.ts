declare const MAP_LIBRARY: string
declare const MAP_WORKER: string
declare const HASH_WORKER: string
