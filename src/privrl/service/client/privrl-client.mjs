// One person's device in a study under local privacy: its report is drawn once, kept, and only then sent.

export class Refused extends Error {}

const refuse = (words) => { throw new Refused(words); };
const UNIT = 512n; // bits of fixed-point numbers below
const COIN = 128n;

// [numerator, denominator] of a float in hexadecimal, such as "0x1.8p+1".
export function rational(hex) {
  const found = /^0x([0-9a-f]+)(?:\.([0-9a-f]*))?p([+-]?\d+)$/.exec(hex) ?? refuse("epsilon is no hexadecimal float");
  const fraction = found[2] ?? "", power = BigInt(found[3]) - 4n * BigInt(fraction.length);
  if (power < -1200n || power > 1200n) refuse("epsilon is too large or too small");
  const whole = BigInt("0x" + found[1] + fraction);
  return power < 0n ? [whole, 1n << -power] : [whole << power, 1n];
}

// A lower bound on e^(n/d) in units of 2^-512: Taylor's series of a 2^-j-th part, rounded down, then squares.
function exponential(n, d) {
  let halvings = 0n;
  while (n >= d << halvings) halvings++;
  const part = (n << UNIT) / (d << halvings);
  let term = 1n << UNIT, sum = 0n;
  for (let i = 1n; term > 0n; i++) { sum += term; term = ((term * part) >> UNIT) / i; }
  for (let i = 0n; i < halvings; i++) sum = (sum * sum) >> UNIT;
  return sum;
}

// The probability of a lie, (k-d)/(d e^eps + k-d), in units of 2^-128, rounded up: lies are never too few.
export function lieThreshold(symbols, size, epsilon) {
  const [n, d] = rational(epsilon), k = BigInt(symbols), s = BigInt(size);
  if (n << 64n < d) refuse("epsilon is below 2**-64");
  if (n > d << 10n) return 1n;
  const lies = (k - s) << UNIT, truth = s * exponential(n, d);
  return ((lies << COIN) + lies + truth - 1n) / (lies + truth);
}

// Words of 64 bits that nobody can predict.
export function systemWords() {
  return crypto.getRandomValues(new BigUint64Array(1))[0];
}

// Uniform on 0, ..., bound-1: the upper 63 bits divided by floor(2^63/bound), again where that is beyond.
function below(word, bound) {
  const quotient = (1n << 63n) / bound;
  for (;;) { const found = (word() >> 1n) / quotient; if (found < bound) return Number(found); }
}

// Subset selection; the same words are drawn whether the truth is in the set or not.
export function select(symbol, symbols, size, threshold, word = systemWords) {
  if (!(Number.isInteger(symbol) && symbol >= 0 && symbol < symbols && size >= 1 && size < symbols)) refuse("no such symbol");
  const coin = word() + (word() << 64n);
  const others = Array.from({ length: symbols }, (_, i) => i).filter((other) => other !== symbol);
  for (let i = 0; i < size; i++) {
    const j = i + below(word, BigInt(symbols - 1 - i));
    [others[i], others[j]] = [others[j], others[i]];
  }
  const held = [...others.slice(0, size - 1), coin < threshold ? others[size - 1] : symbol];
  return held.sort((a, b) => a - b);
}

// The true answer of person `number` (a BigInt); `actions[h][s]` is the plan.
export function symbolOf(study, actions, number, steps) {
  const { states: S, actions: A, horizon: H } = study;
  const rows = Array.from(steps ?? []).slice(0, H).map((row, h, all) => ({ ...row, h, next: row?.next_state ?? all[h + 1]?.state ?? -1 }));
  const whole = (x, bound) => Number.isInteger(x) && x >= 0 && x < bound;
  const inside = (row) => whole(row.state, S) && whole(row.action, A) && whole(row.next, S);
  if (study.asking === "stage-pair") {
    const row = rows[Number(number % BigInt(H))];
    return row && inside(row) ? row.state * S + row.next : S * S;
  }
  let stage = null, s, a;
  if (study.counting === "per-stage") {
    const turn = Number(number % BigInt(H * S));
    stage = Math.floor(turn / S); s = turn % S; a = actions[stage][s];
  } else {
    const played = new Set(actions.flatMap((plan) => plan.map((action, state) => state * A + action)));
    const pairs = [...played].sort((x, y) => x - y);
    const pair = pairs[Number(number % BigInt(pairs.length))];
    s = Math.floor(pair / A); a = pair % A;
  }
  const row = rows.find((r) => r.state === s && r.action === a && (stage === null || r.h === stage));
  return row && inside(row) ? row.next : S;
}

const bytesOf = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const hexOf = (bytes) => Array.from(new Uint8Array(bytes), (b) => b.toString(16).padStart(2, "0")).join("");
const digest = async (text) => hexOf(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));

function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (0xedb88320 & -(crc & 1));
  }
  return ~crc >>> 0;
}

// The whole request, format 3 of privrl.
export function message(hash, ticket, symbols) {
  const out = new DataView(new ArrayBuffer(86 + 8 * symbols.length)), bytes = new Uint8Array(out.buffer);
  bytes.set([0x70, 0x72, 0x76, 0x6d, 3]); // "prvm"
  bytes.set(bytesOf(hash), 6);
  out.setBigUint64(38, BigInt(ticket.number), true);
  out.setUint32(46, ticket.plan, true);
  out.setBigUint64(50, BigInt(ticket.expires), true);
  bytes.set(bytesOf(ticket.mac), 58);
  bytes.set([1, 0, 0x69, 1], 74); // one array, "i" with one axis
  out.setUint32(78, symbols.length, true);
  symbols.forEach((symbol, i) => out.setBigInt64(82 + 8 * i, BigInt(symbol), true));
  out.setUint32(bytes.length - 4, crc32(bytes.subarray(0, -4)), true);
  return bytes;
}

// Kept per origin. `update(name, change)` is one transaction over all tabs; what `change` returns is on disk at its end.
export async function deviceStorage() {
  const asked = (request) => new Promise((done, failed) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
  const opening = indexedDB.open("privrl", 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("studies");
  const database = await asked(opening);
  return {
    update(name, change) {
      return new Promise((done, failed) => {
        const transaction = database.transaction("studies", "readwrite", { durability: "strict" });
        const store = transaction.objectStore("studies");
        let result, thrown;
        transaction.oncomplete = () => done(result);
        transaction.onabort = () => failed(thrown ?? transaction.error ?? new Refused("nothing was kept"));
        const all = {}, walk = store.openCursor();
        walk.onsuccess = () => {
          if (walk.result) { all[walk.result.key] = walk.result.value; walk.result.continue(); return; }
          try { result = change(all[name], all); if (result !== all[name]) store.put(result, name); }
          catch (error) { thrown = error; transaction.abort(); }
        };
      });
    },
  };
}

// `hash`: the SHA-256 of the study document that the app was built for; `cap`: on epsilon, over all studies of the origin.
export class Study {
  static async open(url, { hash, cap, storage, fetch: get = globalThis.fetch.bind(globalThis) }) {
    const text = await (await ok(get(url))).text();
    if (await digest(text) !== hash) refuse("the study document is not the one this app was built for");
    const { format, horizon, parts } = JSON.parse(text), [part] = parts, { question } = part;
    if (format !== 3 || parts.length > 1 || question?.statistic !== "TransitionCounts" || question.with_end) {
      refuse("this client cannot answer this study");
    }
    const study = Object.assign(new Study(), { url, cap, get, hash, document: { ...part, ...question, horizon } });
    study.storage = storage ?? await deviceStorage();
    study.threshold = lieThreshold(study.document.symbols, study.document.size, study.document.epsilon);
    return study;
  }

  // The ticket and the plan of this device, the same after a reload.
  async begin() {
    let kept = await this.storage.update(this.hash, (found) => found);
    if (!kept) {
      const ticket = await (await ok(this.get(`${this.url}/tickets`, { method: "POST" }))).json();
      kept = await this.storage.update(this.hash, (found) => found ?? { ticket });
    }
    const text = await (await ok(this.get(`${this.url}/plans/${kept.ticket.plan}`))).text(), sum = await digest(text);
    kept = await this.storage.update(this.hash, (found) => found.plan ? found : { ...found, plan: sum });
    if (kept.plan !== sum) refuse("another plan was published under this number");
    this.ticket = kept.ticket;
    this.actions = JSON.parse(text).actions;
    return this;
  }

  act(state, step) {
    return this.actions[step][state];
  }

  // A second call, tab or visit sends the bytes that are kept.
  async report(steps, word = systemWords) {
    const { symbols, size, epsilon } = this.document;
    const drawn = select(symbolOf(this.document, this.actions, BigInt(this.ticket.number), steps), symbols, size, this.threshold, word);
    const bytes = message(this.hash, this.ticket, drawn);
    const kept = await this.storage.update(this.hash, (found, all) => {
      if (found.bytes) return found;
      const spent = Object.values(all).filter((one) => one.bytes).map((one) => one.epsilon);
      if (exceeds([...spent, epsilon], this.cap)) refuse("the cap on epsilon of this device is reached");
      return { ...found, bytes, epsilon };
    });
    return this.send(kept.bytes);
  }

  // Sends again what is kept, if anything is; true once the server has it.
  async send(bytes) {
    const kept = bytes ?? (await this.storage.update(this.hash, (found) => found))?.bytes;
    if (!kept) return false;
    const headers = { "content-type": "application/octet-stream" };
    await ok(this.get(`${this.url}/reports`, { method: "POST", body: kept, headers }));
    return true;
  }
}

async function ok(asked) {
  const answer = await asked;
  if (!answer.ok) refuse(`the server answered ${answer.status}`);
  return answer;
}

// Whether a sum of exact epsilons is above a cap, a number of the app.
export function exceeds(epsilons, cap) {
  if (!(cap > 0 && cap < 1e9)) refuse("give a cap on epsilon");
  let [n, d] = rational(`0x${cap.toString(16)}p0`);
  for (const epsilon of epsilons) { const [m, e] = rational(epsilon); n = n * e - m * d; d *= e; }
  return n < 0n;
}
