/**
 * The question: as the form holds it, as a link carries it, as the service takes it.
 * Called by main.js, form.js and request.js; calls nothing. Fields have the service's names, so that a refusal finds
 * its field. What people type is sent as typed where it is no number: the service says what is wrong with it.
 */

/** Words that the service takes; tests compare them with the core's. */
export const WORDS = {
  precision: ["fp32", "tf32", "fp16", "amp_fp16", "amp_bf16"],
  memory_format: ["nchw", "channels_last"],
  framework: ["pytorch", "tensorflow", "chainer"],
  capture: ["eager", "graph", "static_graph", "compile"],
  optimizer: ["sgd", "momentum", "adam"],
  method: ["auto", "gpu-specs", "proxy-times", "layer-times", "roofline", "flops-ratio"], // the others need measurements of the CNN
  loader: ["torchvision", "pillow_simd", "dali", "none"],
  data_source: ["folder", "nfs", "lmdb", "hdf5", "memory"],
};

/** What a first visit asks. Fields of a link that are not given are these. */
export const FIRST = Object.freeze({
  source: "zoo",
  cnn: "resnet50",
  file: "",
  data_set: "imagenet",
  samples: "",
  image_size: "",
  precision: "", // none is sent: the service answers in the framework's default on each GPU
  memory_format: "nchw",
  batch_sizes: "16, 32, 64, 128, 256, 512",
  gpus: [ // measured ones first; all can be rented
    "Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB", "NVIDIA H200", "NVIDIA A10G", "NVIDIA H100 80GB HBM3",
  ],
  epochs: "90",
  budget_usd: "",
  deadline_h: "",
  chosen_only: false,
  all_offers: false,
  spot: false,
  framework: "pytorch",
  capture: "eager",
  optimizer: "momentum",
  method: "auto",
  host: "",
  n_gpus: "",
  nodes: "",
  link: "",
  workers: "", // with none of these four the service counts the loading of JPEGs in comparisons alone
  loader: "",
  samples_per_worker_second: "",
  data_source: "",
  validation_samples: "",
  setup_minutes: "",
  autotune: false,
  sync_batch_norm: false,
});

const SERVICE_DEFAULTS = {
  framework: "pytorch", capture: "eager", optimizer: "momentum", method: "auto", autotune: false, spot: false,
  sync_batch_norm: false, all_offers: false,
};

const WHOLE = new Set(["samples", "image_size", "epochs", "n_gpus", "nodes", "workers", "validation_samples"]);
const NUMBERS = [...WHOLE, "budget_usd", "deadline_h", "setup_minutes", "samples_per_worker_second"];
const MOST_BATCH_SIZE = 65536;

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
  if (link.has("gpu")) state.gpus = [...new Set(link.getAll("gpu").filter(Boolean))].slice(0, 200);
  else state.gpus = [...FIRST.gpus];
  return { state, language: link.get("lang") };
}

/**
 * What the service is asked, each by its path.
 * @param {typeof FIRST} state
 * @param {?import("./upload.js").Upload} upload
 * @returns {Object<string, object>}
 */
export function questions(state, upload) {
  const base = common(state, upload);
  return {
    predictions: {
      ...base, gpus: state.gpus, ...(state.precision ? { precisions: [state.precision] } : {}), memory_formats: [state.memory_format],
    },
    comparisons: {
      ...base,
      ...(state.chosen_only ? { gpus: state.gpus } : {}),
      ...given(state, ["precision"], String),
      memory_format: state.memory_format,
      ...given(state, ["epochs", "budget_usd", "deadline_h", "setup_minutes"], typed),
      ...changed(state, ["all_offers"]),
    },
  };
}

/** What is asked about the GPU of a predicted row, in the row's precision: what its time is made of; of several, one. */
export function explanationQuestion(state, upload, { gpu, precision }) {
  const {
    spot, validation_samples, n_gpus, nodes, link, sync_batch_norm, workers, loader, samples_per_worker_second, data_source, ...base
  } = common(state, upload);
  const batch_sizes = base.batch_sizes.map((size) => size / (n_gpus ?? 1));
  return { ...base, batch_sizes, gpus: [gpu], precision, memory_format: state.memory_format };
}

/** What all questions share, in the order in which people read it. */
export function common(state, upload) {
  return {
    ...(state.source === "zoo" ? { cnn: state.cnn } : upload?.layer_table ? { layer_table: upload.layer_table } : {}),
    batch_sizes: state.batch_sizes.split(/[\s,;、，]+/).filter(Boolean).map(typed),
    ...given(state, ["image_size"], typed),
    ...given(state, ["data_set"], String),
    ...given(state, ["samples", "n_gpus", "nodes", "workers", "samples_per_worker_second", "validation_samples"], typed),
    ...given(state, ["link", "host", "loader", "data_source"], String),
    ...changed(state, ["framework", "capture", "optimizer", "method", "autotune", "sync_batch_norm", "spot"]),
  };
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
  for (const name of NUMBERS) {
    const text = state[name].normalize("NFKC").trim();
    if (/^[1-9]\d{0,2}(\.\d{3})+$/.test(text)) {
      found.push({ name, key: WHOLE.has(name) ? "dots_whole" : "dots", values: { text, number: text.replaceAll(".", "") } });
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

function given(state, names, read) {
  return Object.fromEntries(names.filter((name) => state[name].trim()).map((name) => [name, read(state[name])]));
}

function changed(state, names) {
  return Object.fromEntries(
    names.filter((name) => state[name] !== SERVICE_DEFAULTS[name]).map((name) => [name, state[name]]),
  );
}
