/** The file or the observation is not what the format says. */
export class Refused extends Error {}

/** A checked policy; pass it on unchanged. */
export interface Policy {
  readonly assisted: boolean;
}

/** What is kept from one decision of an episode to the next: plain numbers. */
export interface EpisodeState {
  readonly step: number;
  readonly weight: number;
  readonly previous: number | null;
}

export interface Advice {
  /** Null: the decision is left to the clinician, for `reason`. */
  readonly action: number | null;
  readonly reason: string;
  readonly unusual: readonly { readonly column: string; readonly remark: string }[];
  readonly probability: number;
  /** For `record`. Do not show it if the decision is left to the clinician. */
  readonly choice: number | null;
  readonly if_taken: number;
  readonly otherwise: number;
}

/** A state, its name, or measurements by name or in the order of the columns. */
export type Observation =
  | number
  | string
  | readonly (number | null)[]
  | Readonly<Record<string, number | string | boolean | null>>;

/** Reads the JSON of `policy.json`. Verify the file first (`privrl certify`). */
export function readPolicy(content: unknown): Policy;
export function start(): EpisodeState;
/** A random number in [0, 1). */
export function randomDraw(): number;
/** `draw`: in [0, 1), a new one for every decision; null for the most probable choice, and no advice that is not certain. */
export function advise(policy: Policy, observation: Observation, state?: EpisodeState, draw?: number | null): Advice;
/** The state for the next decision, after `action` was taken. */
export function record(policy: Policy, state: EpisodeState, advice: Advice, action: number): EpisodeState;
