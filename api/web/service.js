/**
 * The service as the page sees it: JSON or a form goes out, JSON or a refusal comes back.
 * Called by main.js; calls fetch, with addresses relative to the page, so that it works behind a path, too.
 */

/** A refusal: the problem document that the service sent (RFC 9457), or one made up where it sent none. */
export class Refusal extends Error {
  /** @param {{status: number, detail: string, error?: string, errors?: {field: string, detail: string}[]}} problem */
  constructor(problem) {
    super(problem.detail);
    this.problem = problem;
  }
}

const MOST_REPEATS = 5;
const MOST_WAIT_S = 15;

/** Get a list. @param {string} path such as "v1/gpus" */
export function get(path) {
  return answerOf(() => fetch(path, { headers: { Accept: "application/json" } }));
}

/**
 * Ask a question.
 * @param {string} path such as "v1/predictions"
 * @param {object} question
 * @param {AbortSignal} [signal]
 */
export function ask(path, question, signal) {
  const headers = { "Content-Type": "application/json" };
  return answerOf(() => fetch(path, { method: "POST", headers, body: JSON.stringify(question), signal }), signal);
}

/**
 * Have an ONNX file read.
 * @param {{name: string, content: Blob}} onnx
 * @param {number|string|undefined} image_size where the file leaves it open
 */
export function readFile(onnx, image_size) {
  const form = new FormData();
  form.set("onnx", onnx.content, onnx.name);
  if (image_size !== undefined) form.set("image_size", image_size);
  return answerOf(() => fetch("v1/cnns", { method: "POST", body: form }));
}

/** Fetch, and again after the time that a busy service asks for. @param {() => Promise<Response>} request */
async function patiently(request, signal) {
  for (let left = MOST_REPEATS; ; left -= 1) {
    const response = await request();
    const wait_s = Number(response.headers.get("Retry-After"));
    if (!left || ![429, 503].includes(response.status) || !(wait_s > 0 && wait_s <= MOST_WAIT_S)) return response;
    await new Promise((done) => setTimeout(done, 1000 * wait_s));
    signal?.throwIfAborted();
  }
}

async function answerOf(request, signal) {
  const response = await patiently(request, signal);
  let found = null;
  try {
    found = await response.json();
  } catch {
    found = null;
  }
  if (response.ok && found !== null) return found;
  throw new Refusal(found?.detail ? found : { status: response.status, detail: `HTTP ${response.status}` });
}
