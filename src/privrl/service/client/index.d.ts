/** The client refuses: a server or a storage is not what this app was built for. Nothing else was sent. */
export class Refused extends Error {}

/** The service refused a request, or did not answer. */
export class ServiceError extends Error {
  /** The HTTP status; 0 if there was no answer. */
  readonly status: number;
  /** A word that never changes, such as `busy`; empty if the answer did not come from the service. */
  readonly reason: string;
  /** After this many seconds the same request may succeed; null if the answer does not say. */
  readonly retryAfter: number | null;
}

/** A record of a storage: numbers, texts, lists and objects, and under `bytes` a `Uint8Array`. */
export interface StoredRecord {
  readonly hash: string;
  readonly [name: string]: unknown;
}

/** What a device keeps: records by `hash`. All studies that share a cap on epsilon share a storage. */
export interface DeviceStorage {
  /**
   * Calls `change` with the record under `hash` (undefined if there is none) and with all records, stores what it
   * returns unless that is the same record, and returns it. It is one transaction over all tabs and processes that use
   * the storage: when the promise is fulfilled the record is on disk, and if `change` throws nothing has changed.
   */
  update(
    hash: string,
    change: (found: StoredRecord | undefined, all: readonly StoredRecord[]) => StoredRecord | undefined,
  ): Promise<StoredRecord | undefined>;
}

/** The storage of a page, in IndexedDB; the default. */
export function deviceStorage(): Promise<DeviceStorage>;

/** A storage that forgets everything with the process: for tests. */
export function memoryStorage(): DeviceStorage;

export interface Step {
  state: number;
  action: number;
  /** The state of the following step unless given. */
  next_state?: number;
}

export interface Options {
  /** SHA-256 of the document of the study, as `privrl serve init` prints it. Ship it with the app. */
  hash: string;
  /** Largest epsilon that all studies of this storage may ever spend. Ship it with the app. */
  cap: number;
  /** IndexedDB unless given. In node, give `fileStorage` of `privrl-client/node`. */
  storage?: DeviceStorage;
  /** The key of a device, if the study asks for one. */
  key?: string;
  /** How long a request may be repeated after no answer, a 429, 500, 502, 503 or 504; 30 unless given, 0 for never. */
  retrySeconds?: number;
  /** How long to wait for one answer; 10 unless given. */
  timeoutSeconds?: number;
  fetch?: typeof fetch;
}

/** One device in a study under local privacy. */
export class Study {
  /** Opens a study; offline too, once the device has opened it before. */
  static open(url: string, options: Options): Promise<Study>;
  /** The sizes of the study. */
  readonly document: { readonly states: number; readonly actions: number; readonly horizon: number };
  /** The number of this visit, from 0. */
  readonly visit?: number;
  /** Begins or continues a visit: its ticket and its plan. A device that has both needs no connection. */
  begin(): Promise<this>;
  /** The action of the plan; both numbers count from 0. */
  act(state: number, step: number): number;
  /**
   * Draws the report once, stores it, and sends it; later calls send the stored bytes. False if it cannot count: the
   * study is full or has ended, or the ticket has expired.
   */
  report(steps: readonly Step[]): Promise<boolean>;
  /** Sends the stored report again; false if there is none, or if it cannot count any more. */
  send(): Promise<boolean>;
}
