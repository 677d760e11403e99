// Every published vector through the whole client, with a server and a storage that are lists; what differs is returned.
export async function replay(client, { thresholds, caps, messages, visits }) {
  const wrong = [];
  const compare = (what, found, expected) => {
    if (JSON.stringify(found) !== JSON.stringify(expected)) wrong.push(`${what}: ${JSON.stringify(found)}`);
  };
  thresholds.forEach(([symbols, size, epsilon, threshold], i) =>
    compare(`threshold ${i}`, client.lieThreshold(symbols, size, epsilon).toString(), threshold));
  caps.forEach(([epsilons, cap, above], i) => compare(`cap ${i}`, client.exceeds(epsilons, cap), above));
  for (const [i, one] of messages.entries()) {
    const { study, sent, left } = await visit(client, one, listed(), 9);
    compare(`truth of message ${i}`, client.symbolOf(study.document, study.actions, BigInt(one.ticket.number), one.steps), one.symbol);
    compare(`message ${i}`, sent, [one.bytes, one.bytes]);
    compare(`words left of message ${i}`, left, 0);
  }
  for (const [i, one] of visits.entries()) {
    const storage = listed(), last = one.messages.at(-1), { hash } = last;
    const refused = await visit(client, one.messages[0], storage, one.too_low).then(() => "", ({ message }) => message);
    compare(`cap below the charge ${i}`, [refused, (await storage.update(hash, (found) => found)).bytes], ["the cap on epsilon is reached", null]);
    for (const [k, message] of one.messages.entries()) {
      const { study, sent } = await visit(client, message, storage, k ? 1e-9 : one.epsilon); // all is charged with the first
      compare(`visit ${k} of device ${i}`, [study.visit, ...sent], [k, message.bytes, message.bytes]);
      compare(`charge ${i}`, (await storage.update(hash, (found) => found)).epsilon, one.charged);
    }
    const further = await visit(client, { ...one.messages[0], plan: last.plan }, storage, 9); // nothing is left to report
    compare(`visits of device ${i}`, [further.study.visit, ...further.sent], [one.messages.length - 1, last.bytes, last.bytes]);
  }
  return wrong;
}

// One visit with the words of a vector; the second report sends the first one again.
async function visit(client, one, storage, cap) {
  const sent = [], words = one.words.map(BigInt), answers = {
    "": one.document, "/tickets": JSON.stringify(one.ticket), "/reports": "",
  };
  const fetch = async (path, { body }) => {
    if (path === "/reports") sent.push(Array.from(body, (b) => b.toString(16).padStart(2, "0")).join(""));
    return new Response(answers[path] ?? JSON.stringify(one.plan));
  };
  const study = await client.Study.open("", { hash: one.hash, cap, storage, fetch });
  await study.begin();
  await study.report(one.steps, () => words.shift());
  await study.report([], () => 0n);
  return { study, sent, left: words.length };
}

// A storage in memory, for one tab.
export function listed() {
  const all = [];
  return {
    async update(hash, change) {
      const at = all.findIndex((one) => one.hash === hash), made = change(all[at], all);
      if (made) all.splice(at < 0 ? all.length : at, 1, made);
      return made;
    },
  };
}
