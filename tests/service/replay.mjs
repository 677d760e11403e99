// Reads cases as JSON and prints what the browser client makes of them.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const client = await import(pathToFileURL(process.argv[2]));
const cases = JSON.parse(readFileSync(0, "utf8"));
const thresholds = cases.thresholds.map(([k, d, epsilon]) => client.lieThreshold(k, d, epsilon).toString());
const messages = cases.messages.map((one) => {
  const words = one.words.map(BigInt);
  const { study, ticket } = one;
  const symbol = client.symbolOf(study, one.plan, BigInt(ticket.number), one.steps);
  const threshold = client.lieThreshold(study.symbols, study.size, study.epsilon);
  const symbols = client.select(symbol, study.symbols, study.size, threshold, () => words.shift());
  return { symbol, symbols, left: words.length, bytes: Buffer.from(client.message(one.hash, ticket, symbols)).toString("hex") };
});
const caps = cases.caps.map(([epsilons, cap]) => client.exceeds(epsilons, cap));
console.log(JSON.stringify({ thresholds, messages, caps }));
