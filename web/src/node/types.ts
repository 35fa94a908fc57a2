// What the node sends, as far as the page reads it. Names and members are those of the OpenAPI document; a test compares them.

export interface Reason { dep: string; reason: string; next: string }
export interface Readiness {
  ready: boolean; write_ready: boolean; degraded: boolean
  missing: string[] | null; reasons: Reason[] | null; retry_after: number
}
export interface Service { name: string; state: string; restarts: number; last_error?: string }
export interface Queue { service: string; name: string; depth: number; cap: number }
export interface Part { name: string; at?: string; up: boolean }
export interface Status {
  peer_id: string; version: string; profile: string; amnesia: boolean; confined: string
  listen: {http: string; admin: string; overlay: string; dht?: string[]}
  services: Service[] | null; queues: Queue[] | null; parts?: Part[]
  store: {objects: number; bytes: number; budget: number}
  memory: {used: number; limit: number; from: string}
  knocks?: Knock[]
}
export interface Snapshot {
  at: string; started: string; readiness: Readiness; status: Status
  refused: Record<string, number>; counters: Record<string, number>
  latency: {le: number; n: number}[]
}
export interface NodeEvent { type: string; at: string; name?: string; detail?: string }
export interface Version { version: string; commit: string; go: string; features?: string[] | null }
export interface ListedObject { address: string; size: number; class: string }
export interface ObjectList { objects: ListedObject[]; next?: string }
export interface NameRecord { name: string; manifest: string; issued?: string; expires?: string; seq: number; shadowed?: boolean }
export interface Provider { id: string; addr?: string; addrs?: string[]; class: string; region?: string; latency?: string; last_seen_s?: number; score: number }
export interface Resolution { key: string; kind: string; manifest_cid: string; source: string; freshness_s: number; stale?: boolean; providers: Provider[] | null }
export interface Pack {
  name: string; kind: string; format?: string; state: string; size: number; minzoom: number; maxzoom: number
  bounds?: number[]; modified?: string; verified?: boolean; version?: string; tilejson?: string; file: string; reason?: string; next?: string
}
export interface TileJSON {
  name?: string; description?: string; attribution?: string; version?: string; tiles: string[]; bounds?: number[]; center?: number[]; minzoom: number; maxzoom: number
  vector_layers?: {id: string; description?: string; minzoom?: number; maxzoom?: number; fields?: Record<string, string>}[]
}
export interface Peer { id: string; addr?: string; state: string; dialed: boolean; pq?: boolean; rtt_ms?: number; since?: string; last_error?: string; retry_in_ms?: number }
export interface Knock { id: string; addr: string; first: string; last: string; count: number; accept: string }
export interface Invitation { invitation?: string; id: string; name?: string; share?: boolean; expires: string; uses: number; used_by: string[] | null; addrs?: string[]; reach?: string }
export interface RegistryHead { version: number; hash: string; payload_b3: string; committed_at: string }
export interface Proposal {
  proposal_id: string; status: string; approvals: string[] | null; quorum: {m: number; n: number}; reason?: string; next?: string
  ops?: unknown[] | null; diff?: {id: string; before?: unknown}[] | null; expires_at: string; payload_b3: string; sign_this: string
}
export interface BundleRecord { header: string; payload: string; preconditions: string }
export interface RegistryVersion extends BundleRecord {
  version: number; hash: string; items: unknown[] | null
  signer_set: {m: number; version: number; keys: {signer_id: string; public: string}[]} // the set that signed it
}
export interface Bundle {
  registry: string; key: string; checkpoint: string; version: number; record: BundleRecord; inclusion: string[]
  signers: {version: number; record: BundleRecord; inclusion: string[]}[]
}
export interface Setting { key: string; value: string; origin: string; type: string; unit?: string; doc: string; variable: string; secret?: boolean; restart?: boolean }
export interface Settings { profile: string; settings: Setting[] }
export interface DeadLetter { id: string; body: string; deliveries: number; reason?: string; sent_at: string; died_at: string }
export interface SearchHit { kind: string; id?: string; name?: string; path?: string; address?: string; score: number; snippet?: string }
export interface FeedItem { id: string; author: string; body: string; at: string; score: number }
