// Servers that answer with damaged documents, tickets and plans: how many there are, and which of them got something.
import { listed } from "./replay.mjs";

export async function hostile(client, vectors) {
  const one = vectors.messages[0], document = JSON.parse(one.document), wrong = [];
  const honest = {
    "": one.document, "/tickets": JSON.stringify(one.ticket), [`/plans/${one.ticket.plan}`]: JSON.stringify(one.plan),
  };
  const damages = [];
  const add = (name, path, text) => damages.push([name, { ...honest, [path]: text }]);
  const spoilt = [undefined, null, -1, 0.5, "", "a", [], [[]], {}, true, "1e3", " 1", "../x", 1e21, "9".repeat(20)];
  for (const [key, value] of Object.entries(document)) {
    for (const bad of [...spoilt, value + 1]) add(`document.${key}`, "", JSON.stringify({ ...document, [key]: bad }));
  }
  const loud = structuredClone(document);
  loud.parts[0].epsilon = "0x1.0p+9";
  add("epsilon raised", "", JSON.stringify(loud));
  add("document with a space", "", one.document + " ");
  for (const key of Object.keys(one.ticket)) {
    for (const bad of spoilt) {
      add(`ticket.${key} = ${JSON.stringify(bad)}`, "/tickets", JSON.stringify({ ...one.ticket, [key]: bad }));
    }
  }
  for (const text of ["", "null", "[]", "1", "{}", "<p>"]) add(`ticket is ${text}`, "/tickets", text);
  const plan = `/plans/${one.ticket.plan}`, { actions } = one.plan;
  const changed = (change) => {
    const copy = structuredClone(actions);
    change(copy);
    return JSON.stringify({ actions: copy });
  };
  for (const bad of [...spoilt, 2]) {
    add("plan is spoilt", plan, JSON.stringify({ actions: bad }));
    add("row is spoilt", plan, changed((rows) => { rows[2] = bad; }));
    add("action is spoilt", plan, changed((rows) => { rows[2][1] = bad; }));
  }
  add("no last row", plan, changed((rows) => rows.pop()));
  add("one more row", plan, changed((rows) => rows.push(rows[0])));
  add("no last state", plan, changed((rows) => rows[0].pop()));
  add("one more state", plan, changed((rows) => rows[0].push(0)));
  for (const [name, answers] of damages) {
    const storage = listed(), reports = [];
    const fetch = async (path, options) => {
      if (options.body) reports.push(path);
      return new Response(answers[path]);
    };
    try {
      const study = await client.Study.open("", { hash: one.hash, cap: 9, storage, fetch });
      await study.begin();
      await study.report(one.steps);
      wrong.push(`taken: ${name}`);
    } catch { /* refused */ }
    if (reports.length) wrong.push(`sent: ${name}`);
    const kept = await storage.update(one.hash, (found) => found);
    if (kept && (kept.bytes || kept.plan || !name.match(/plan|row|state|action/))) wrong.push(`kept: ${name}`);
  }
  return [damages.length, ...wrong];
}

// How many messages a device draws and sends to servers that want more than the study says, and what it has charged:
// tickets that are old, repeated or ended, answers that do not come, two tabs, and a device that never stops coming.
export async function greedy(client, vectors, rounds = 40) {
  const found = [];
  let seed = 1;
  const random = () => (seed = seed * 48271 % 2147483647) / 2147483647;
  for (const { messages, epsilon } of vectors.visits) {
    const [one] = messages;
    for (const server of ["repeats tickets", "ended tickets", "no answers", "anything"]) {
      const storage = listed(), sent = new Set();
      let numbers = 0;
      const often = () => server !== "anything" || random() < 0.5;
      const fetch = async (path, { body }) => {
        if (path === "") return new Response(one.document);
        if (path === "/tickets") {
          const number = server === "repeats tickets" && often() ? 7 : numbers++, mac = number.toString(16).padStart(32, "0");
          const expires = server === "ended tickets" || !often() ? "1" : one.ticket.expires;
          return new Response(JSON.stringify({ number: `${number}`, plan: 0, expires, mac }));
        }
        if (path !== "/reports") return new Response(JSON.stringify(one.plan));
        sent.add(body); // by identity: two draws may be alike
        return new Response("", { status: server === "no answers" || !often() ? 503 : 201 });
      };
      const open = () => client.Study.open("", { hash: one.hash, cap: epsilon, storage, fetch });
      const tabs = [await open(), await open()];
      for (let i = 0; i < rounds; i++) {
        const tab = tabs[random() < 0.5 ? 0 : 1];
        if (!tab.actions || random() < 0.7) await tab.begin();
        if (random() < 0.8) await tab.report(one.steps).catch(() => 0);
      }
      const charged = (await storage.update(one.hash, (kept) => kept)).epsilon;
      found.push([server, messages.length, sent.size, charged.length]);
    }
  }
  return found;
}

// What a device sends that has reported with an earlier version of the client, and whether its ledger knows of it.
export async function upgraded(client, vectors) {
  const [one, , , other] = vectors.messages.filter((_, i) => i % 10 === 0), storage = listed(), sent = [];
  const { epsilon } = JSON.parse(one.document).parts[0], bytes = Uint8Array.from(one.bytes.match(/../g), (pair) => "0x" + pair);
  const fetch = async (path, { body }) => {
    if (body) sent.push(body);
    const answers = { "": current.document, "/tickets": JSON.stringify({ ...current.ticket, number: "99" }) };
    return new Response(answers[path] ?? JSON.stringify(current.plan));
  };
  const sum = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(JSON.stringify(one.plan)));
  const plan = Array.from(new Uint8Array(sum), (b) => b.toString(16).padStart(2, "0")).join("");
  await storage.update(one.hash, () => ({ hash: one.hash, ticket: one.ticket, plan, bytes, epsilon }));
  let current = one;
  for (let i = 0; i < 3; i++) {
    const study = await client.Study.open("", { hash: one.hash, cap: 1, storage, fetch });
    await (await study.begin()).report([]);
  }
  current = other;
  const study = await client.Study.open("", { hash: other.hash, cap: 1.25, storage, fetch }); // 1 is spent, and it costs .5
  const words = await (await study.begin()).report([]).then(() => "reported", ({ message }) => message);
  return [sent.length, sent.every((body) => body === bytes), words];
}

// Which truths take another number of words than the others, over many streams: how long a draw takes tells nothing.
export function unequal(client, streams = 300) {
  const wrong = [], symbols = 5;
  for (let i = 0; i < streams; i++) {
    const words = Array.from({ length: 64 }, client.systemWords), sizes = new Set();
    words[2] = (1n << 64n) - BigInt(1 + i % 4); // often beyond the bound, so that it is drawn again
    for (let symbol = 0; symbol < symbols; symbol++) {
      for (const threshold of [0n, 1n << 128n]) {
        let taken = 0;
        client.select(symbol, symbols, 1 + i % 4, threshold, () => words[taken++]);
        sizes.add(taken);
      }
    }
    if (sizes.size > 1) wrong.push(i);
  }
  return wrong;
}

// How many reports a study gets whose document has too few symbols, over all answers: it must not depend on the answer.
export async function tooFew(client, vectors) {
  const one = vectors.messages[0], document = JSON.parse(one.document), sent = [];
  document.parts[0].symbols = 3;
  const text = JSON.stringify(document), sum = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  const hash = Array.from(new Uint8Array(sum), (b) => b.toString(16).padStart(2, "0")).join("");
  const answers = { "": text, "/tickets": JSON.stringify(one.ticket), "/reports": "" };
  const fetch = async (path, { body }) => {
    if (body) sent.push(path);
    return new Response(answers[path] ?? JSON.stringify(one.plan));
  };
  const { states, actions } = document.parts[0].question;
  for (let i = 0; i < states * actions * states; i++) {
    const study = await client.Study.open("", { hash, cap: 9, storage: listed(), fetch });
    await study.begin();
    const state = Math.floor(i / states / actions), action = Math.floor(i / states) % actions;
    await study.report([{ state, action, next_state: i % states }]);
  }
  return sent.length - states * actions * states;
}
