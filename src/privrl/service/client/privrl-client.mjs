// One device in a study under local privacy: it draws a report once, stores it, then sends it.

export class Refused extends Error {}

const refuse = (words) => { throw new Refused(words); };
const UNIT = 512n; // bits after the point
const ONE = 1n << 1200n; // for exact numbers

// "0x1.8p+1" in units of 2^-1200.
export function exact(hex) {
  const [, whole, rest, power] = /^0x([\da-f]+)\.?([\da-f]*)p([+-]?\d+)$/.exec(hex) ?? refuse("not a hexadecimal float");
  const shift = power - 4 * rest.length;
  if (Math.abs(shift) > 1200) refuse("epsilon is out of range");
  return BigInt("0x" + whole + rest) << BigInt(1200 + shift);
}

// At most e^eps, in units of 2^-512: the series of eps/2^j, rounded down, then squares.
function exponential(epsilon) {
  let halvings = 0n;
  while (epsilon >= ONE << halvings) halvings++;
  const part = (epsilon << UNIT) / (ONE << halvings);
  let term = 1n << UNIT, sum = 0n;
  for (let i = 1n; term > 0n; i++) { sum += term; term = ((term * part) >> UNIT) / i; }
  for (let i = 0n; i < halvings; i++) sum = (sum * sum) >> UNIT;
  return sum;
}

// The probability of a lie, (k-d)/(d e^eps + k-d), in units of 2^-128, rounded up.
export function lieThreshold(symbols, size, epsilon) {
  const units = exact(epsilon), lies = BigInt(symbols - size) << UNIT;
  if (units << 64n < ONE) refuse("epsilon is out of range");
  if (units > ONE << 10n) return 1n;
  const truth = BigInt(size) * exponential(units);
  return ((lies << 128n) + lies + truth - 1n) / (lies + truth);
}

export const systemWords = () => crypto.getRandomValues(new BigUint64Array(1))[0];

// Uniform below `bound`, by rejection: the upper 63 bits over floor(2^63/bound).
function below(word, bound) {
  const quotient = (1n << 63n) / bound;
  for (;;) { const found = (word() >> 1n) / quotient; if (found < bound) return Number(found); }
}

// Subset selection. Truth and lie draw the same words.
export function select(symbol, symbols, size, threshold, word = systemWords) {
  if (!whole(symbol, symbols) || !whole(size - 1, symbols - 1)) refuse("no such symbol");
  const coin = word() + (word() << 64n);
  const others = [...Array(symbols).keys()].filter((other) => other !== symbol);
  for (let i = 0; i < size; i++) {
    const j = i + below(word, BigInt(symbols - 1 - i));
    [others[i], others[j]] = [others[j], others[i]];
  }
  if (coin >= threshold) others[size - 1] = symbol;
  return others.slice(0, size).sort((a, b) => a - b);
}

const whole = (x, bound) => Number.isInteger(x) && x >= 0 && x < bound;

// The true answer of person `number`, a BigInt, to the plan `actions[h][s]`.
export function symbolOf(study, actions, number, steps) {
  const { states: S, actions: A, horizon: H } = study, turn = (count) => Number(number % BigInt(count));
  let rows = Array.from(steps ?? []).slice(0, H)
    .map((row, h, all) => ({ ...row, next: row?.next_state ?? all[h + 1]?.state })), s, a;
  const inside = (row) => whole(row.state, S) && whole(row.action, A) && whole(row.next, S);
  if (study.asking === "stage-pair") {
    const row = rows[turn(H)];
    return row && inside(row) ? row.state * S + row.next : S * S;
  }
  if (study.counting === "per-stage") {
    const h = Math.floor(turn(H * S) / S);
    s = turn(S); a = actions[h][s]; rows = rows.slice(h, h + 1);
  } else {
    const played = actions.flatMap((plan) => plan.map((action, state) => state * A + action));
    const pairs = [...new Set(played)].sort((a, b) => a - b);
    const pair = pairs[turn(pairs.length)];
    s = Math.floor(pair / A); a = pair % A;
  }
  const row = rows.find((r) => r.state === s && r.action === a);
  return row && inside(row) ? row.next : S;
}

const bytesOf = (hex) => Uint8Array.from(hex.match(/../g), (pair) => "0x" + pair);
const hexOf = (bytes) => [...new Uint8Array(bytes)].map((b) => b.toString(16).padStart(2, "0")).join("");
const digest = async (text) => hexOf(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));

function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (0xedb88320 & -(crc & 1));
  }
  return ~crc >>> 0;
}

// The whole request, in format 3.
export function message(hash, ticket, symbols) {
  const bytes = new Uint8Array(86 + 8 * symbols.length), out = new DataView(bytes.buffer);
  bytes.set(bytesOf("7072766d0300" + hash)); // "prvm", 3
  out.setBigUint64(38, BigInt(ticket.number), true);
  out.setUint32(46, ticket.plan, true);
  out.setBigUint64(50, BigInt(ticket.expires), true);
  bytes.set(bytesOf(ticket.mac + "01006901"), 58); // one array of integers with one axis
  out.setUint32(78, symbols.length, true);
  symbols.forEach((symbol, i) => out.setBigInt64(82 + 8 * i, BigInt(symbol), true));
  out.setUint32(bytes.length - 4, crc32(bytes.subarray(0, -4)), true);
  return bytes;
}

// Per origin. `update` is one transaction over all tabs; at its end the result of `change` is on disk.
export async function deviceStorage() {
  const database = await new Promise((done, failed) => {
    const opening = indexedDB.open("privrl", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("studies", { keyPath: "hash" });
    opening.onsuccess = () => done(opening.result);
    opening.onerror = () => failed(opening.error);
  });
  const update = (hash, change) => new Promise((done, failed) => {
    const transaction = database.transaction("studies", "readwrite", { durability: "strict" });
    if (transaction.durability !== "strict") refuse("this browser cannot store durably");
    const store = transaction.objectStore("studies"), all = store.getAll();
    let result;
    transaction.oncomplete = () => done(result);
    transaction.onabort = () => failed(transaction.error ?? new Refused("nothing was kept"));
    all.onsuccess = () => {
      const found = all.result.find((one) => one.hash === hash);
      try { result = change(found, all.result); if (result !== found) store.put(result); }
      catch (error) { failed(error); transaction.abort(); }
    };
  });
  return { update };
}

// `hash`: SHA-256 of the study document; `cap`: on epsilon, over all studies of the origin.
export class Study {
  static async open(url, { hash, cap, storage, fetch: get = (...given) => fetch(...given) }) {
    const study = Object.assign(new this(), { url, cap, get, hash });
    const text = await study.ask("");
    if (await digest(text) !== hash) refuse("the study is not the one this app was built for");
    const { format, horizon, parts, reports } = JSON.parse(text), [part] = parts, { question } = part;
    if (format !== 3 || parts.length > 1 || question?.statistic !== "TransitionCounts" || question.with_end) {
      refuse("this client cannot answer this study");
    }
    study.document = { ...part, ...question, horizon };
    study.charges = Array(reports || 1).fill(part.epsilon); // one for each report
    study.threshold = lieThreshold(part.symbols, part.size, part.epsilon);
    study.storage = storage ?? await deviceStorage();
    return study;
  }

  // The ticket and plan of a visit; of a full study, the newest plan.
  async begin() {
    const usable = (found) => found?.bytes && !(found.visit < this.charges.length - 1)
      || !found?.sent && found?.ticket.expires > Date.now() / 1000;
    let kept = await this.kept();
    if (!usable(kept)) {
      const answer = JSON.parse(await this.ask("/tickets", { method: "POST" })), { number, plan, expires, mac } = answer;
      const ticket = { number, plan, expires, mac };
      if (answer && !/^(\d{1,18},){3}[\da-f]{32}$/.test(Object.values(ticket))) refuse("this is not a ticket");
      kept = answer && await this.kept((found) => usable(found) ? found
        : { hash: this.hash, ticket, epsilon: found?.epsilon, visit: (found?.visit ?? 0) + !!found?.bytes });
    }
    const { ticket } = kept, text = await this.ask("/plans/" + (ticket?.plan ?? "newest")), plan = await digest(text);
    const { actions } = JSON.parse(text), { states: S, actions: A, horizon: H } = this.document;
    const full = (list, length, good) => list.length === length && list.every(good);
    if (!full(actions, H, (row) => full(row, S, (action) => whole(action, A)))) refuse("this is not a plan");
    kept = !ticket ? { plan }
      : await this.kept((found) => found.plan || found.ticket.mac !== ticket.mac ? found : { ...found, plan });
    if (kept.plan !== plan) refuse("another plan was published under this number");
    return Object.assign(this, { ticket, actions, visit: kept.visit });
  }

  act(state, step) {
    return this.actions[step][state];
  }

  // Later calls send the stored bytes.
  async report(steps, word = systemWords) {
    if (!this.ticket) return false;
    const { symbols, size } = this.document;
    const truth = symbolOf(this.document, this.actions, BigInt(this.ticket.number), steps);
    const drawn = select(Math.min(truth, symbols - 1), symbols, size, this.threshold, word);
    const bytes = message(this.hash, this.ticket, drawn);
    await this.kept((found, all) => {
      if (found.bytes || found.ticket.mac !== this.ticket.mac) return found;
      const spent = all.flatMap((one) => one.epsilon ?? []);
      if (!found.epsilon && exceeds([...spent, ...this.charges], this.cap)) refuse("the cap on epsilon is reached");
      return { ...found, bytes, epsilon: this.charges };
    });
    return this.send();
  }

  // Sends the stored report; false if there is none.
  async send() {
    const { bytes: body, ticket } = await this.kept() ?? {};
    if (!body) return false;
    await this.ask("/reports", { method: "POST", body });
    await this.kept((found) => found?.ticket.mac === ticket.mac ? { ...found, sent: true } : found);
    return true;
  }

  kept(change = (found) => found) {
    return this.storage.update(this.hash, change);
  }

  async ask(path, options) {
    const answer = await this.get(this.url + path, { credentials: "omit", referrerPolicy: "no-referrer", ...options });
    if (path === "/tickets" && answer.status === 410) return "0";
    return answer.ok ? answer.text() : refuse("the server answered " + answer.status);
  }
}

export function exceeds(epsilons, cap) {
  if (!(cap > 0 && cap < 1e9)) refuse("give a cap");
  return epsilons.reduce((left, epsilon) => left - exact(epsilon), exact(`0x${(+cap).toString(16)}p0`)) < 0n;
}
