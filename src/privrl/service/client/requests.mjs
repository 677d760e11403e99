// Requests that are repeated, and errors that say why they failed.

const PROBLEM = "urn:privrl:problem:";
const REPEATED = [0, 429, 500, 502, 503, 504];
const FIRST_PAUSE = 0.1, LONGEST_PAUSE = 10; // seconds between two attempts, unless the answer says Retry-After

export class ServiceError extends Error {
  constructor(status, reason, detail, retryAfter = null, cause = undefined) {
    super(detail, { cause });
    Object.assign(this, { name: "ServiceError", status, reason, retryAfter });
  }
}

// An answer with its text. Sends the same request until repeating it would not change the answer, or time is up.
export async function send(get, url, options, { retrySeconds, timeoutSeconds, accepts = () => false }) {
  const end = performance.now() + 1000 * retrySeconds;
  for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
    let failure;
    try {
      const answer = await get(url, { ...options, signal: AbortSignal.timeout(1000 * timeoutSeconds) });
      const { ok, status } = answer, text = await answer.text();
      if (ok || accepts(status)) return { ok, status, text: async () => text };
      failure = refusal(status, text, answer.headers.get("retry-after"));
    } catch (error) {
      failure = new ServiceError(0, "", "The service did not answer. Send the request again: it counts once.", null, error);
    }
    const wait = failure.retryAfter ?? pause * (0.5 + Math.random());
    if (!REPEATED.includes(failure.status) || performance.now() + 1000 * wait > end) throw failure;
    await new Promise((done) => setTimeout(done, 1000 * wait));
  }
}

// Reads a problem document; an answer that is not one comes from a proxy.
function refusal(status, text, retryAfter) {
  let reason = "", detail = `The service answered ${status}.`;
  try {
    const found = JSON.parse(text);
    if (found.type.startsWith(PROBLEM)) { reason = found.type.slice(PROBLEM.length); detail = String(found.detail); }
  } catch { /* not a problem document */ }
  return new ServiceError(status, reason, detail, /^\d+$/.test(retryAfter ?? "") ? Number(retryAfter) : null);
}
