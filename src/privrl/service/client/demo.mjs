// The page of `privrl serve demo`: a visitor swims, and sees what the client makes of it.
import { Refused, Study, exact, symbolOf } from "./privrl-client.mjs";

const LEFT = 0, RIGHT = 1, ARROWS = ["◀", "▶"], PAUSE = 70; // milliseconds
const at = (id) => document.getElementById(id);

// An element with attributes and children.
function made(name, attributes = {}, ...children) {
  const drawn = ["svg", "rect", "path", "circle", "text", "g"].includes(name);
  const element = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// Sends a request and lists it on the page.
async function listed(url, options = {}) {
  const row = made("tr", options.body ? { class: "body" } : {},
    made("td", {}, `${options.method ?? "GET"} ${url.replace("/v1/studies/", "")}`), made("td", { class: "number" }, String(options.body?.length ?? 0)));
  at("requests").append(row);
  try {
    const answer = await fetch(url, options);
    const words = { 201: "counted", 200: options.body ? "already counted" : "OK" };
    row.append(made("td", {}, `${answer.status} ${words[answer.status] ?? ""}`));
    return answer;
  } catch (error) {
    row.append(made("td", {}, "no answer"));
    throw error;
  }
}

const app = await (await fetch("app.json")).json();
const { transition, rewards, initial } = app.world;
const S = transition.length, place = (state) => 90 + state * (780 / (S - 1));
let study, steps = [], state = initial, won = 0, reported = false;

const number = (epsilon) => Number(exact(epsilon) >> 1168n) / 2 ** 32;
const written = (value) => String(Number(value.toPrecision(4)));
const names = (symbol) => symbol === S ? "never" : `pool ${symbol + 1}`;

// The pair in question: the only one whose visit changes the answer.
function target() {
  for (let s = 0; s < S; s++) {
    for (const a of [LEFT, RIGHT]) {
      const truth = symbolOf(study.document, study.actions, BigInt(study.ticket.number), [{ state: s, action: a, next_state: 0 }]);
      if (truth === 0) return [s, a];
    }
  }
}

function drawRiver() {
  const wave = (y, width) => {
    let path = `M ${width} ${y}`;
    for (let x = width; x > 0; x -= 80) path += ` q -20 -7 -40 0 t -40 0`;
    return made("path", { class: "stream", d: path });
  };
  const pools = Array.from({ length: S }, (_, s) => [
    made("circle", { class: "pool", id: `pool${s}`, cx: place(s), cy: 125, r: 46 }),
    made("text", { class: "number-of-pool", x: place(s), y: 206 }, String(s + 1)),
  ]);
  const coin = (s, r, words) => [
    made("circle", { class: "coin", cx: place(s), cy: 27, r }),
    made("text", { class: `reward ${s ? "far" : "near"}`, x: s ? place(s) - 75 : place(s) + 72, y: 31 }, words),
  ];
  at("river").append(
    made("rect", { class: "shore", width: 960, height: 250 }),
    made("path", { class: "water", d: "M0 58 Q 240 40 480 56 T 960 50 V 218 Q 720 232 480 220 T 0 224 Z" }),
    ...[84, 112, 140, 168, 196].map((y, i) => wave(y, 960 + 16 * i)), ...pools.flat(),
    ...coin(0, 6, `pays ${rewards[0][LEFT]} a step`), ...coin(S - 1, 15, `pays ${rewards[S - 1][RIGHT]} a step`),
    made("g", { class: "swimmer", id: "swimmer" },
      made("circle", { cx: 0, cy: -14, r: 13 }), made("path", { d: "M -30 14 q 15 -14 30 0 t 30 0" })),
  );
}

function show() {
  const { horizon } = study.document, over = steps.length === horizon, advised = over ? null : study.act(state, steps.length);
  at("swimmer").style.transform = `translate(${place(state)}px, 125px)`;
  at("where").textContent = over
    ? `Done: ${won.toFixed(2)} earned in ${horizon} steps.`
    : `Pool ${state + 1}, step ${steps.length + 1} of ${horizon}, ${won.toFixed(2)} earned.`;
  for (const [id, action] of [["left", LEFT], ["right", RIGHT]]) {
    at(id).disabled = over;
    at(id).classList.toggle("advised", action === advised);
  }
  at("follow").disabled = over;
  at("advice").textContent = over ? "" : `Plan ${study.ticket.plan} says ${advised === LEFT ? "left" : "right"} here; you may do otherwise.`;
  const [s, a] = target(), first = steps.findIndex((one) => one.state === s && one.action === a);
  at("swim").replaceChildren(...steps.map((one, i) =>
    made("li", i === first ? { class: "asked" } : {}, `${one.state + 1} ${ARROWS[one.action]} ${one.next_state + 1}`)));
  at(`pool${s}`).classList.add("target");
  at("question").replaceChildren(
    `You are number ${study.ticket.number}, so your question is: the first time that you swam `,
    made("b", {}, a === LEFT ? "left" : "right"), " in ", made("b", {}, names(s)), ", where did you come out? Or did that never happen?");
}

async function showKept() {
  const kept = await study.kept(), truth = reported === "now" ? symbolOf(study.document, study.actions, BigInt(study.ticket.number), steps) : null;
  const bytes = kept?.bytes, held = bytes ? symbolsOf(bytes) : [];
  at("set").replaceChildren(...Array.from({ length: S + 1 }, (_, symbol) =>
    made("li", { class: `${held.includes(symbol) ? "held" : ""} ${symbol === truth ? "true" : ""}` }, names(symbol))));
  const { symbols: k, size: d, epsilon } = study.document, value = number(epsilon), w = Math.exp(value);
  const share = (d * w) / (d * w + k - d);
  at("odds").textContent = `${d} of ${k} answers. The true one is among them with probability ${share.toFixed(2)}; whichever `
    + `answer is true, no set is more than e^${written(value)} = ${w.toFixed(2)} times as likely as under another.`;
  if (bytes) {
    at("truth").className = "answer";
    at("truth").textContent = truth === null ? "not stored anywhere"
      : `${names(truth)}, ${held.includes(truth) ? "and it is in the set" : "which is not in the set"}`;
    showBytes(bytes);
  }
  await showLedger();
}

function symbolsOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return Array.from({ length: view.getUint32(78, true) }, (_, i) => Number(view.getBigInt64(82 + 8 * i, true)));
}

// Where each part of a message of format 3 ends.
function showBytes(bytes) {
  const parts = [
    ["format", "format", 6], ["study", "study", 38], ["number", "your number", 46], ["plan", "plan", 50],
    ["expires", "end of the ticket", 58], ["mac", "signature of the ticket", 74], ["format", "form of the set", 82],
    ["answer-set", "the random set", bytes.length - 4], ["sum", "checksum", bytes.length],
  ];
  let begin = 0;
  const hex = parts.map(([name, , end]) => {
    const text = Array.from(bytes.subarray(begin, end), (b) => b.toString(16).padStart(2, "0")).join(" ");
    begin = end;
    return made("span", { class: `field ${name}` }, text);
  });
  at("bytes").className = "bytes";
  at("bytes").replaceChildren(...hex.flatMap((one) => [one, " "]));
  at("fields").replaceChildren(...parts.filter(([, words]) => words !== "form of the set")
    .map(([name, words]) => made("span", {}, made("span", { class: `field ${name}` }, "\u00a0\u00a0"), ` ${words}`)));
  at("size").textContent = `(${bytes.length} of them, the same number for every person)`;
}

async function showLedger() {
  let all;
  await study.kept((found, every) => { all = every; return found; });
  const spent = all.reduce((sum, one) => sum + [one.epsilon ?? []].flat().reduce((all, epsilon) => all + number(epsilon), 0), 0), share = Math.min(1, spent / app.cap);
  at("ledger").replaceChildren(
    made("rect", { class: "cap", width: 400, height: 18, rx: 9 }), made("rect", { class: "used", width: 400 * share, height: 18, rx: 9 }),
    made("text", { class: "mark", x: 0, y: 38 }, "0"), made("text", { class: "mark", x: 400, y: 38, "text-anchor": "end" }, `cap ${app.cap}`));
  at("spent").textContent = `epsilon ${written(spent)} of ${app.cap} spent`;
}

async function swim(action) {
  const draw = crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32, row = transition[state][action];
  let sum = 0, next = row.findIndex((p) => (sum += p) > draw);
  if (next < 0) next = row.findLastIndex((p) => p > 0);
  won += rewards[state][action];
  steps.push({ state, action, next_state: next });
  state = next;
  show();
  if (steps.length === study.document.horizon) await finish();
}

async function finish() {
  const before = (await study.kept()).bytes;
  try { await study.report(steps); } finally { // drawn, charged and kept, also if there was no answer
    reported = before ? "before" : (await study.kept()).bytes ? "now" : false;
    await showKept();
    at("again").disabled = !reported;
  }
}

const guarded = (work) => async () => {
  try { await work(); } catch (error) {
    at("trouble").hidden = false;
    at("trouble").textContent = error instanceof Refused ? `Refused: ${error.message}. Nothing else was sent.`
      : "No answer from the study. A report that was drawn is kept and charged: send the kept bytes again.";
  }
};

at("left").onclick = guarded(() => swim(LEFT));
at("right").onclick = guarded(() => swim(RIGHT));
at("follow").onclick = guarded(async () => {
  while (steps.length < study.document.horizon) {
    await swim(study.act(state, steps.length));
    await new Promise((done) => setTimeout(done, PAUSE));
  }
});
at("again").onclick = guarded(async () => {
  await study.send();
  at("trouble").hidden = true;
});
at("forget").onclick = () => {
  const opening = indexedDB.open("privrl");
  opening.onsuccess = () => {
    const clearing = opening.result.transaction("studies", "readwrite");
    clearing.objectStore("studies").clear();
    clearing.oncomplete = () => location.reload();
  };
};
document.onkeydown = ({ key }) => ({ ArrowLeft: at("left"), ArrowRight: at("right") })[key]?.click();

drawRiver();
await guarded(async () => {
  study = await Study.open(app.study, { hash: app.hash, cap: app.cap, fetch: listed });
  at("hash").textContent = app.hash;
  reported = (await study.kept())?.bytes ? "before" : false;
  at("forget").disabled = false;
  at("again").disabled = !reported;
  await showLedger();
  await study.begin();
  show();
  await showKept();
})();
