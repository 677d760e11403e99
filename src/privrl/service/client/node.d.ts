import type { DeviceStorage, Step } from "./index.js";

export { Refused, ServiceError } from "./index.js";

/**
 * The storage of one device in a file, for one process at a time. A second process is refused; the lock of a process
 * that was killed is taken over.
 */
export function fileStorage(file: string): DeviceStorage;

/** A person who has arrived. Keep it until `finish`, or call `arrive` again with the same ids. */
export interface Arrival {
  /** Empty if the study is full or has ended: `act` then answers from the plan in force, and `finish` sends nothing. */
  readonly ticket: string;
  /** How many people arrived before, as a decimal number. */
  readonly number?: string;
  readonly plan?: number;
  /** ISO 8601; a record that comes later does not count. Null if no record of this person counts. */
  readonly deadline?: string | null;
  /** In a pilot, what the person gets. */
  readonly arm?: string;
}

/** The steps of an episode, or in a pilot the outcomes by name. */
export type PersonRecord = readonly (Step & { reward: number })[] | Readonly<Record<string, number>>;

export interface AppOptions {
  /** How long a request may be repeated; 60 unless given, 0 for never. */
  retrySeconds?: number;
  /** How long to wait for one answer; 10 unless given. */
  timeoutSeconds?: number;
  fetch?: typeof fetch;
}

/** One central study or pilot, for the back end of an app with a key. Every call may be repeated. */
export class AppClient {
  constructor(url: string, key: string, options?: AppOptions);
  /** Gets a person's ticket; the same ids get the same one. */
  arrive(
    user: string | number,
    options?: { visit?: string | number; groups?: Readonly<Record<string, string>> },
  ): Promise<Arrival>;
  /** The action of a person; null if a pilot leaves the decision to the clinician. */
  act(arrival: Arrival, state: number, step: number): Promise<number | null>;
  actMany(queries: readonly (readonly [Arrival, number, number])[]): Promise<(number | null)[]>;
  /** Sends a person's record. It counts once. */
  finish(arrival: Arrival, record: PersonRecord): Promise<void>;
  finishMany(records: readonly (readonly [Arrival, PersonRecord])[]): Promise<void>;
}
