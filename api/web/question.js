/**
 * The question: as the form holds it, as a link carries it, as the service takes it.
 * Called by main.js, form.js and request.js; calls nothing. Fields have the service's names, so that a refusal finds
 * its field. What people type is sent as typed where it is no number: the service says what is wrong with it.
 */

/** What a first visit asks, and fields of a link that are not given; `learn` adds the service's options. */
export const FIRST = {
  source: "zoo",
  cnn: "resnet50",
  file: "",
  data_set: "imagenet",
  batch_sizes: "16, 32, 64, 128, 256, 512",
  gpus: [ // measured ones first; all can be rented
    "Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB", "NVIDIA H200", "NVIDIA A10G", "NVIDIA H100 80GB HBM3",
  ],
  epochs: "90",
  chosen_only: false,
};

/**
 * @typedef {{name: string, kind: string, help: string, default: *, usual: string, choices: string[],
 *   needs: Object<string, string>, answers: string[], listed: ?string}} Option
 * @type {Option[]}
 */
let options = [];
const UNSEEN = ["anchors", "relative_to"]; // no field takes the first, no table shows the second
const NUMBERS = ["whole", "number", "hours", "usd", "workers", "trainings"];
const MOST_BATCH_SIZE = 65536;
const RETIRED = { machine_workers: ["workers", "machine"], samples_per_worker_second: ["loader", "worker"], images_per_second: ["loader", "machine"] };

/**
 * A question as the part of a link after #.
 * @param {typeof FIRST} state
 * @param {string} language
 * @param {boolean} [whole] write what equals the first visit's, too: a link that is kept outlives other defaults
 */
export function toFragment(state, language, whole = false) {
  const link = new URLSearchParams();
  for (const [name, first] of Object.entries(FIRST)) {
    const value = state[name];
    if (name === "gpus") {
      if (whole || value.join("|") !== first.join("|")) (value.length ? value : [""]).forEach((gpu) => link.append("gpu", gpu));
    } else if (whole || value !== first) link.set(name, value === true ? "1" : value === false ? "0" : value);
  }
  if (whole || language !== "en") link.set("lang", language);
  return link.toString();
}

/**
 * A link's question and language; what it does not know it leaves out.
 * @param {string} fragment with or without #
 * @returns {{state: typeof FIRST, language: ?string}}
 */
export function fromFragment(fragment) {
  const link = new URLSearchParams(fragment.replace(/^#/, ""));
  const state = { ...FIRST };
  for (const [name, first] of Object.entries(FIRST)) {
    if (name === "gpus" || !link.has(name)) continue;
    const text = link.get(name).slice(0, 2000);
    state[name] = typeof first === "boolean" ? text === "1" : text;
  }
  for (const [old, [name, unit]] of Object.entries(RETIRED)) if (link.get(old)) state[name] = `${link.get(old).slice(0, 100)}/${unit}`;
  if (link.has("gpu")) state.gpus = [...new Set(link.getAll("gpu").filter(Boolean))].slice(0, 200);
  else state.gpus = [...FIRST.gpus];
  return { state, language: link.get("lang") };
}

/**
 * Take the options that the service declares (`GET /v1/options`).
 * @param {Option[]} served
 * @returns {Option[]} those that the form shows
 */
export function learn(served) {
  options = served.filter(({ name }) => !UNSEEN.includes(name));
  for (const { name, kind, default: usual } of options) {
    FIRST[name] ??= kind === "flag" || kind === "choice" ? (usual ?? "") : "";
  }
  return options;
}

/**
 * What the service is asked, each by its path.
 * @param {typeof FIRST} state
 * @param {?import("./upload.js").Upload} upload
 * @returns {Object<string, object>}
 */
export function questions(state, upload) {
  const compared = question("comparisons", state, upload);
  // the first visit's sizes are those of the table and its chart: offers are compared at one, as without any
  if (state.batch_sizes === FIRST.batch_sizes) delete compared.batch_sizes;
  return {
    predictions: { ...question("predictions", state, upload), gpus: state.gpus },
    comparisons: { ...compared, ...(state.chosen_only ? { gpus: state.gpus } : {}) },
  };
}

/** What is asked about the GPU of a predicted row, in the row's precision: what its time is made of; of several, one. */
export function explanationQuestion(state, upload, { gpu, precision }) {
  const asked = question("explanations", { ...state, precision }, upload);
  const batch_sizes = asked.batch_sizes.map((size) => size / (typed(state.n_gpus) || 1));
  return { ...asked, batch_sizes, gpus: [gpu] };
}

/** What is asked about one training of a question that was answered. @param {"checks"|"differences"|"memory_plans"} answers */
export function trainingQuestion(answers, state, upload, gpu, batch_size) {
  return { ...question(answers, state, upload), gpus: [gpu], batch_sizes: [batch_size] };
}

/** The CNN, batch sizes, and every option that these answers read and that is not at its default. */
function question(answers, state, upload) {
  const given = options.filter((option) => option.answers.includes(answers)).map((option) => [option, valueOf(option, state)]);
  return {
    ...(state.source === "zoo" ? { cnn: state.cnn } : upload?.layer_table ? { layer_table: upload.layer_table } : {}),
    batch_sizes: state.batch_sizes.split(/[\s,;、，]+/).filter(Boolean).map(typed),
    ...Object.fromEntries(
      given
        .filter(([option, value]) => value !== option.default)
        .map(([{ name, listed }, value]) => (listed && answers === "predictions" ? [listed, [value]] : [name, value])),
    ),
  };
}

function valueOf({ name, kind, default: usual }, state) {
  if (kind === "flag") return state[name];
  if (!state[name].trim()) return usual;
  return NUMBERS.includes(kind) ? typed(state[name]) : state[name];
}

const UNITS = { s: 1 / 3600, m: 1 / 60, h: 1, d: 24, w: 168 };

/** US$ of a budget as the service takes it, such as 100 or "$100"; null where there is none. @param {*} value */
export function usdOf(value) {
  return value === null || value === undefined ? null : Number(String(value).replace(/US ?\$|USD|[$,\s]/gi, ""));
}

/** Hours of a deadline as the service takes it, such as 36 or "1d 12h"; null where there is none. @param {*} value */
export function hoursOf(value) {
  if (value === null || value === undefined) return null;
  if (Number.isFinite(Number(value))) return Number(value);
  const parts = [...String(value).toLowerCase().matchAll(/(\d+(?:\.\d+)?|\.\d+)\s*([smhdw])/g)];
  return parts.reduce((hours, [, number, unit]) => hours + Number(number) * UNITS[unit], 0);
}

/** Text as a number where it is one; full-width digits and thousands' commas count. */
export function typed(text) {
  const plain = text.normalize("NFKC").trim();
  const bare = /^\d{1,3}(,\d{3})+$/.test(plain) ? plain.replaceAll(",", "") : plain;
  return bare !== "" && Number.isFinite(Number(bare)) ? Number(bare) : plain;
}

/**
 * Numbers that may mean two things, such as 1.000, and 1,024 in a list: they are asked back about, never guessed.
 * @param {typeof FIRST} state
 * @returns {{name: string, key: string, values: object}[]} the field and the message
 */
export function doubts(state) {
  const found = [];
  for (const { name, kind } of options.filter((option) => NUMBERS.includes(option.kind))) {
    const text = state[name].normalize("NFKC").trim();
    if (/^[1-9]\d{0,2}(\.\d{3})+$/.test(text)) {
      found.push({ name, key: kind === "whole" ? "dots_whole" : "dots", values: { text, number: text.replaceAll(".", "") } });
    }
  }
  const sizes = state.batch_sizes.normalize("NFKC").split(/[\s;、]+/);
  for (const text of sizes.map((each) => each.replace(/^,+|,+$/g, ""))) {
    const number = text.replaceAll(",", "");
    if (/^\d{1,3},\d{3}$/.test(text) && Number(number) <= MOST_BATCH_SIZE) {
      found.push({ name: "batch_sizes", key: "comma", values: { text, number, list: text.split(",").map(Number).join(", ") } });
    } else if (/^[1-9]\d{0,2}(\.\d{3})+$/.test(text)) {
      found.push({ name: "batch_sizes", key: "dots_whole", values: { text, number: text.replaceAll(".", "") } });
    }
  }
  return found;
}
