// For node: a storage in a file, and a client for the back end of an app, which holds a key and must not be in a page.

import { randomUUID } from "node:crypto";
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { dirname, resolve } from "node:path";
import { isMainThread } from "node:worker_threads";
import { Refused } from "./privrl-client.mjs";
import { ServiceError, send } from "./requests.mjs";

export { Refused, ServiceError };

const MAX_BATCH = 1000; // people in one request
const ended = ({ reason }) => ["full", "purged"].includes(reason); // people are then served without a ticket
const OPEN = globalThis[Symbol.for("privrl file storages")] ??= new Map(); // also of another copy of this module

// The storage of one device in a file, for one process at a time: `update` has synced the file when it returns. In
// another container of the same name a process seems to be dead, so a process that has lost its lock changes nothing.
export function fileStorage(file) {
  const path = resolve(file);
  if (!isMainThread) throw new Refused("use fileStorage in the main thread");
  if (OPEN.has(path)) return OPEN.get(path);
  const owner = lock(`${path}.lock`);
  const owns = () => { try { return readFileSync(`${path}.lock`, "utf8") === owner; } catch { return false; } };
  process.on("exit", () => { if (owns()) rmSync(`${path}.lock`); });
  const storage = {
    async update(hash, change) { // no other call comes in between: nothing in it waits
      if (!owns()) throw new Refused("another process has taken over this storage");
      const all = read(path), found = all.find((one) => one.hash === hash), made = change(found, all);
      if (made !== found) write(path, [...all.filter((one) => one !== found), made]);
      return made;
    },
  };
  OPEN.set(path, storage);
  return storage;
}

// A lock says which process holds it. That of a process that was killed is taken over by one other process.
function lock(path) {
  const owner = JSON.stringify([hostname(), process.pid, randomUUID()]);
  const make = (name) => writeFileSync(name, owner, { flag: "wx", mode: 0o600 });
  const remedy = `If no process uses this storage, delete ${path} and ${path}.new.`;
  try { make(path); return owner; } catch (error) { if (error.code !== "EEXIST") throw error; }
  try { make(`${path}.new`); } catch { throw new Refused(`another process opens this storage. ${remedy}`); }
  try {
    if (isHeld(readFileSync(path, "utf8"))) throw new Refused(`another process uses this storage. ${remedy}`);
    writeFileSync(path, owner);
    return owner;
  } finally {
    rmSync(`${path}.new`);
  }
}

function isHeld(text) {
  try {
    const [host, pid] = JSON.parse(text);
    if (host === hostname() && pid === process.pid) return false; // of an earlier process with this number
    if (host === hostname()) process.kill(pid, 0); // 0: only looks whether it exists
    return true;
  } catch (error) {
    return error.code !== "ESRCH";
  }
}

function read(path) {
  const bytesOf = (name, value) => name === "bytes" ? Uint8Array.from(Buffer.from(value, "hex")) : value;
  try {
    return JSON.parse(readFileSync(path, "utf8"), bytesOf);
  } catch (error) {
    if (error.code === "ENOENT") return [];
    throw error; // a damaged file is not an empty one
  }
}

function write(path, records) {
  const hexOf = (name, value) => name === "bytes" ? Buffer.from(value).toString("hex") : value;
  writeFileSync(`${path}.new`, JSON.stringify(records, hexOf), { mode: 0o600, flush: true });
  renameSync(`${path}.new`, path);
  if (process.platform !== "win32") {
    const folder = openSync(dirname(path), "r");
    try { fsyncSync(folder); } finally { closeSync(folder); }
  }
}

// One study of a service, for an app with a key. A call may be repeated: the app chooses all ids, and a ticket counts once.
export class AppClient {
  #ask;

  constructor(url, key, { retrySeconds = 60, timeoutSeconds = 10, fetch: get = (...given) => fetch(...given) } = {}) {
    if (!/^https?:\/\/.+\/studies\/[^/]+$/.test(url)) {
      throw new Refused("the address must be that of a study, such as https://service.example/v1/studies/river");
    }
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    this.#ask = async (what, content) => {
      const body = JSON.stringify(content);
      const answer = await send(get, `${url}/${what}`, { method: "POST", headers, body }, { retrySeconds, timeoutSeconds });
      return JSON.parse(await answer.text() || "null");
    };
  }

  // The ticket of a person; the same ids get the same one. It is empty if the study is full or has ended.
  async arrive(user, { visit, groups } = {}) {
    try {
      return await this.#ask("tickets", { user, visit, groups });
    } catch (error) {
      if (!ended(error)) throw error;
      return { ticket: "" };
    }
  }

  async act(arrival, state, step) {
    return (await this.#ask("actions", query(arrival, state, step))).action;
  }

  // The actions of several people, each given as [arrival, state, step].
  async actMany(queries) {
    const found = [];
    for (const part of parts(queries.map((one) => query(...one)))) {
      found.push(...(await this.#ask("actions:batch", { queries: part })).answers.map(({ action }) => action));
    }
    return found;
  }

  async finish(arrival, record) {
    await this.finishMany([[arrival, record]]);
  }

  // The records of several people, each given as [arrival, record]: a list of steps, or in a pilot the outcomes by name.
  async finishMany(records) {
    const counted = records.filter(([{ ticket }]) => ticket);
    const episodes = counted.filter(([, record]) => Array.isArray(record)).map(([{ ticket }, steps]) => ({ ticket, steps }));
    const outcomes = counted.filter(([, record]) => !Array.isArray(record)).map(([{ ticket }, outcomes]) => ({ ticket, outcomes }));
    for (const [what, name, found] of [["episodes", "episodes", episodes], ["outcomes", "records", outcomes]]) {
      try {
        if (found.length === 1) await this.#ask(what, found[0]);
        else for (const part of parts(found)) await this.#ask(`${what}:batch`, { [name]: part });
      } catch (error) {
        if (!ended(error)) throw error; // otherwise it is too late to count
      }
    }
  }
}

const query = ({ ticket }, state, step) => ({ state, step, ticket: ticket || undefined });

const parts = (all) => Array.from({ length: Math.ceil(all.length / MAX_BATCH) }, (_, i) => all.slice(i * MAX_BATCH, (i + 1) * MAX_BATCH));
