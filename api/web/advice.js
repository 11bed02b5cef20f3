/**
 * The user's own training: whether its speed is normal, how it fits in memory, and what another CNN would change.
 * Loaded by main.js when the panel is first opened; calls dom, format, i18n, question and table.
 */
import { byId, fill, make } from "./dom.js";
import { count, dollars, duration, durations, number, share, shortGpu } from "./format.js";
import { said, t } from "./i18n.js";
import { typed } from "./question.js";
import { Table } from "./table.js";

const SPEEDS = ["images_per_s", "iteration_time_ms", "epoch_time_s"]; // fields of a check
const MOST_CAUSES = 3;

/** The panel. */
export class Advice {
  /**
   * @param {(path: string, gpu: string, batch_size: number, more: object) => Promise<object>} ask the service about
   *   the question that is answered, on one GPU at one batch size; throws with words
   * @param {(message: string) => void} say
   */
  constructor(ask, say) {
    Object.assign(this, { ask, say, found: {} });
  }

  /** Take the answer to another question. @param {object[]} rows predictions @param {string[]} cnns of the zoo */
  offer(rows, cnns) {
    Object.assign(this, { rows, cnns, found: {} });
    this.draw();
  }

  /** Draw again, as after a change of language; what was typed stays. */
  draw() {
    const before = new Map([...byId("advice-body").querySelectorAll("input, select")].map(({ id, value }) => [id, value]));
    const list = (id, key, options) => {
      const select = make("select", { id });
      fill(select, options, options.some(([name]) => name === before.get(id)) ? before.get(id) : options[0][0]);
      return field(id, key, select);
    };
    const [gpus, sizes] = ["gpu", "batch_size"].map((name) => [...new Set(this.rows.map((row) => row[name]))]);
    byId("advice-body").replaceChildren(
      make("div", { class: "pair" }, list("advice_gpu", "gpu", gpus.map((gpu) => [gpu, shortGpu(gpu)])), list("advice_batch", "batch_sizes_one", sizes.map((size) => [String(size), count(size)]))),
      make("h3", { text: t("check_title") }),
      make("div", { class: "pair" }, field("check_speed", "check_speed", make("input", { id: "check_speed", inputmode: "decimal", autocomplete: "off", value: before.get("check_speed") ?? "" })), list("check_unit", "check_unit", SPEEDS.map((name) => [name, t(`speed_${name}`)]))),
      ...this.#part("checks", "check_ask", () => ({ [byId("check_unit").value]: typed(byId("check_speed").value) })),
      make("h3", { text: t("fit_title") }),
      make("div", { class: "pair" }, field("fit_memory", "fit_memory", make("input", { id: "fit_memory", inputmode: "decimal", autocomplete: "off", value: before.get("fit_memory") ?? "" }))),
      ...this.#part("memory_plans", "fit_ask", () => (byId("fit_memory").value.trim() ? { memory_gib: typed(byId("fit_memory").value) } : {})),
      make("h3", { text: t("diff_title") }),
      make("div", { class: "pair" }, list("diff_after", "cnn", this.cnns.map((cnn) => [cnn, cnn]))),
      ...this.#part("differences", "diff_ask", () => ({ after: { cnn: byId("diff_after").value } })),
    );
    this.#show("checks");
    this.#show("memory_plans");
    this.#show("differences");
  }

  /** The button of a question, and the place of its answer. */
  #part(path, key, more) {
    const ask = make("button", { type: "button", class: "quiet", id: `${path}-ask`, text: t(key), onclick: () => this.#asked(path, more()) });
    return [make("p", { class: "row" }, ask), make("p", { class: "error", id: `${path}-problem`, role: "alert", lang: "en" }), make("div", { id: `${path}-answer`, role: "status" })];
  }

  async #asked(path, more) {
    try {
      this.found[path] = await this.ask(path, byId("advice_gpu").value, Number(byId("advice_batch").value), more);
      byId(`${path}-problem`).textContent = "";
    } catch (error) {
      this.found[path] = null;
      const { text, lang } = said(error.message);
      Object.assign(byId(`${path}-problem`), { textContent: text, lang });
    }
    this.#show(path);
  }

  #show(path) {
    const place = byId(`${path}-answer`);
    if (!this.found[path]) return place.replaceChildren();
    if (path === "checks") return place.replaceChildren(...checked(this.found.checks.checkup));
    if (path === "memory_plans") return place.replaceChildren(...planned(this.found.memory_plans));
    const [change] = this.found.differences.differences;
    const layers = make("div");
    place.replaceChildren(make("p", { text: changed(change) }), layers);
    if (change.layers.length) new Table(layers, this.say).draw(layerTable([...change.layers, { ...change.rest, layer: t("diff_rest") }]));
  }
}

function field(id, key, control) {
  return make("div", { class: "field" }, make("label", { for: id, text: t(key) }), control);
}

const milliseconds = (ms) => duration(ms / 1000);

/** The verdict, and the likeliest causes with what mends them, in the service's English. */
function checked({ verdict, measured_ms, normal_ms, low_ms, high_ms, causes, sharing }) {
  const values = { factor: number(measured_ms / normal_ms, 2), measured: milliseconds(measured_ms), normal: milliseconds(normal_ms), interval: durations(low_ms / 1000, high_ms / 1000, normal_ms / 1000) };
  const items = causes.slice(0, MOST_CAUSES).map(({ name, probability, what, remedy, saved_h, saved_usd }) => {
    const saved = saved_h > 0 ? ` ${t("saves", { saved: [duration(3600 * saved_h), saved_usd === null ? "" : dollars(saved_usd)].filter(Boolean).join(", ") })}` : "";
    return make("li", {}, `${share(probability)} %: ${t(`cause_${name}`)}.${saved} `, make("small", { lang: "en", text: `${what}. ${remedy}` }));
  });
  return [make("p", {}, t(`check_${verdict}`, values), sharing && make("small", { lang: "en", text: ` (${sharing})` })), make("ul", { class: "facts" }, ...items)];
}

/** The plan, what it is without each concession, and its lines of PyTorch. */
function planned({ best, without }) {
  const others = Object.entries(without).map(([name, plan]) => make("li", { text: t("plan_without", { what: t(`concession_${name}`), plan: plan ? planWords(plan) : t("fits_not") }) }));
  const { within_budget, within_deadline, chance } = best.row;
  const holds = within_budget !== false && within_deadline !== false;
  const likely = chance === null || !holds ? "" : `, ${t("likely", { share: share(chance) })}`;
  return [
    make("p", { text: `${holds ? "" : `${t("plan_nearest")} `}${planWords(best)}${likely}` }),
    make("ul", { class: "facts" }, ...others),
    make("pre", { lang: "en", tabindex: "0", text: best.code }),
  ];
}

/** A plan in a line: its mode and concessions, memory, time, cost and where. */
function planWords({ row, parts, recomputed, optimizer, memory_gib, slower, concessions }) {
  const blocks = recomputed.length <= 3 ? recomputed.join(", ") : t("plan_blocks", { n: count(recomputed.length), first: recomputed[0], last: recomputed.at(-1) });
  const ways = [
    t(`precision_${row.precision}`),
    row.memory_format === "nchw" ? "" : t(`memory_format_${row.memory_format}`),
    blocks && t("plan_recompute", { blocks }),
    parts > 1 && t("plan_parts", { parts: count(parts), images: count(Math.floor(row.local_batch_size / parts)) }),
    concessions.includes("optimizer") && optimizer,
    concessions.includes("image_size") && t("plan_pixels", { pixels: count(row.image_size) }),
  ];
  const facts = [
    t(row.per_gpu > 1 ? "plan_memory_of_all" : "plan_memory", { peak: number(row.peak_memory_gib), memory: number(memory_gib), n: count(row.per_gpu) }),
    (parts > 1 || blocks) && t("plan_slower", { change: percent(slower) }),
    `${duration(3600 * row.total_time_h)} (${durations(...[row.total_low_h, row.total_high_h, row.total_time_h].map((h) => 3600 * h))})`,
    row.total_cost_usd !== null && `${dollars(row.total_cost_usd)} (${number(row.total_low_usd)}–${number(row.total_high_usd)})`,
    row.trials > 1 && t("plan_trials", { n: count(row.trials) }),
  ];
  const where = t("on_gpu", { gpu: [`${count(row.gpus_used)}x ${shortGpu(row.gpu)}`, row.offer].filter(Boolean).join(", ") });
  return `${ways.filter(Boolean).join(" + ")}: ${facts.filter(Boolean).join(", ")} ${where}`;
}

const percent = (ratio) => `${ratio < 1 ? "−" : "+"}${number(Math.abs(100 * (ratio - 1)), 2)}`;

/** What the change does, in a sentence. */
function changed({ before, after, ratio, low, high }) {
  const gib = after.peak_memory_gib - before.peak_memory_gib;
  const values = { change: percent(ratio), low: percent(low), high: percent(high), before: milliseconds(before.iteration_time_ms), after: milliseconds(after.iteration_time_ms), memory: `${gib < 0 ? "−" : "+"}${number(Math.abs(gib), 2)}` };
  const fits = after.fits_in_memory === false ? ` ${t("fits_not")}.` : "";
  const unsure = low <= 1 && high >= 1 ? ` ${t("diff_unsure")}` : "";
  return low < high ? t("diff_answer", values) + fits + unsure : t("diff_same");
}

function layerTable(rows) {
  const columns = [
    { key: "layer", title: t("layer"), text: true, head: true, value: (row) => row.layer, cell: (row) => row.layer },
    ...["before", "after"].map((side) => ({ key: side, title: t(side), value: (row) => row[`count_${side}`], cell: (row) => count(row[`count_${side}`]) })),
    { key: "ms", title: t("unit_ms"), value: (row) => row.after_ms - row.before_ms, cell: (row) => `${number(row.before_ms)} → ${number(row.after_ms)}` },
  ];
  return { caption: t("diff_layers"), columns, rows };
}
