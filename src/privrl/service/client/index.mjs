// One device in a study under local privacy, for pages and node: `privrl-client.mjs` with retries, with errors that say
// why, and with a document and a plan that are kept, so that a device with a ticket works offline.

import { Refused, Study as Device, deviceStorage as openDatabase } from "./privrl-client.mjs";
import { ServiceError, send } from "./requests.mjs";

export { Refused, ServiceError };

// The storage of a page: IndexedDB of its origin.
export async function deviceStorage() {
  if (!globalThis.indexedDB) throw new Refused("there is no IndexedDB here: give a storage");
  return openDatabase();
}

// A storage that forgets everything with the process. Use it in tests only: a device that forgets its report may draw
// another one.
export function memoryStorage() {
  const records = new Map();
  return {
    async update(hash, change) {
      const made = change(records.get(hash), [...records.values()]);
      if (made !== undefined) records.set(hash, made);
      return made;
    },
  };
}

export class Study extends Device {
  #keep;

  static async open(url, { fetch: get = (...given) => fetch(...given), key, retrySeconds = 30, timeoutSeconds = 10, ...given }) {
    const storage = given.storage ?? await deviceStorage(), hash = `${given.hash} texts`;
    let { texts } = await storage.update(hash, (found) => found) ?? { texts: {} }, newest = null;
    const ask = async (address, asked) => {
      const path = address.slice(url.length), stays = /^(\/plans\/\d+)?$/.test(path); // these texts never change
      if (stays && path in texts) return { ok: true, status: 200, text: async () => texts[path] };
      const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
      const accepts = (status) => path === "/tickets" && status === 410; // a full study still serves
      const answer = await send(get, address, { ...asked, headers }, { retrySeconds, timeoutSeconds, accepts });
      if (stays) newest = { [path]: await answer.text() };
      return answer;
    };
    const study = await super.open(url, { ...given, storage, fetch: ask });
    study.#keep = async () => { // only what the client has accepted; a new plan replaces the last one
      if (newest === null) return;
      texts = { "": texts[""], ...newest };
      newest = null;
      await storage.update(hash, () => ({ hash, texts }));
    };
    await study.#keep();
    return study;
  }

  async begin() {
    await super.begin();
    await this.#keep();
    return this;
  }

  async send() {
    try {
      return await super.send();
    } catch (error) {
      if (error.status !== 410) throw error; // otherwise it can no longer count, and the visit goes on
      return false;
    }
  }
}
