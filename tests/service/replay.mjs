// Every published vector through the whole client, with a server and a storage that are lists; what differs is returned.
export async function replay(client, { thresholds, caps, messages }) {
  const wrong = [];
  const compare = (what, found, expected) => {
    if (JSON.stringify(found) !== JSON.stringify(expected)) wrong.push(`${what}: ${JSON.stringify(found)}`);
  };
  thresholds.forEach(([symbols, size, epsilon, threshold], i) =>
    compare(`threshold ${i}`, client.lieThreshold(symbols, size, epsilon).toString(), threshold));
  caps.forEach(([epsilons, cap, above], i) => compare(`cap ${i}`, client.exceeds(epsilons, cap), above));
  for (const [i, one] of messages.entries()) {
    const sent = [], words = one.words.map(BigInt), answers = {
      "": one.document, "/tickets": JSON.stringify(one.ticket), [`/plans/${one.ticket.plan}`]: JSON.stringify(one.plan), "/reports": "",
    };
    const fetch = async (path, { body }) => { if (path === "/reports") sent.push(body); return new Response(answers[path]); };
    const study = await client.Study.open("", { hash: one.hash, cap: 9, storage: listed(), fetch });
    await study.begin();
    await study.report(one.steps, () => words.shift());
    await study.report([], () => 0n); // sends the first one again
    const hex = sent.map((bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join(""));
    compare(`truth of message ${i}`, client.symbolOf(study.document, study.actions, BigInt(one.ticket.number), one.steps), one.symbol);
    compare(`message ${i}`, hex, [one.bytes, one.bytes]);
    compare(`words left of message ${i}`, words.length, 0);
  }
  return wrong;
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
