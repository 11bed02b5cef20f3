/**
 * What the time on one GPU is made of: bars by class of operators, what it waits for, what other modes would give.
 * Called by main.js; calls charts, table, format and i18n.
 */
import { draw, legendColumns, look, tone } from "./charts.js";
import { byId, fill, make } from "./dom.js";
import { count, duration, number, shortGpu } from "./format.js";
import { known, t } from "./i18n.js";
import { extrapolationMark } from "./columns.js";
import { Table } from "./table.js";

const LEAST_SHARE = 0.01; // smaller classes are drawn together, as other
const MOST_SWITCHES = 5;

/** The panel; asks for an explanation of the GPU that is chosen in it. */
export class Explanation {
  /**
   * @param {(gpu: string) => Promise<object>} ask the service about one GPU; throws with words
   * @param {(message: string) => void} say
   */
  constructor(ask, say) {
    this.ask = ask;
    this.found = null;
    this.classes = new Table(byId("classes-table"), say);
    this.modes = new Table(byId("modes-table"), say);
    byId("why_gpu").addEventListener("change", () => this.load());
    byId("why_batch").addEventListener("change", () => this.#drawModes());
  }

  /** Take other GPUs to choose from. @param {string[]} gpus */
  offer(gpus) {
    const before = byId("why_gpu").value;
    fill(byId("why_gpu"), gpus.map((gpu) => [gpu, shortGpu(gpu)]), gpus.includes(before) ? before : gpus[gpus.length - 1]);
    byId("why").hidden = !gpus.length;
    return this.load();
  }

  /** Ask about the chosen GPU and show the answer. */
  async load() {
    const gpu = byId("why_gpu").value;
    byId("why").setAttribute("aria-busy", "true");
    byId("why-body").classList.add("busy");
    try {
      const found = await this.ask(gpu);
      if (gpu !== byId("why_gpu").value) return;
      this.found = found.explanations[0];
      byId("why-problem").textContent = "";
    } catch (error) {
      if (error.name === "AbortError") return;
      this.found = null;
      byId("why-problem").textContent = error.message;
    }
    byId("why-body").hidden = !this.found;
    byId("why-body").classList.remove("busy");
    byId("why").setAttribute("aria-busy", "false");
    this.draw();
  }

  /** Draw again, as after a change of size, language or colours. */
  draw() {
    if (!this.found) return;
    const sizes = this.found.batch_sizes.map(String);
    const before = byId("why_batch").value;
    fill(byId("why_batch"), sizes.map((size) => [size, count(Number(size))]), sizes.includes(before) ? before : sizes[Math.floor(sizes.length / 2)]);
    byId("why-facts").replaceChildren(...facts(this.found).map((text) => make("li", { text })));
    this.classes.draw(classTable(this.found));
    this.#drawModes();
    this.drawChart();
  }

  drawChart() {
    if (this.found) draw("why-chart", spec(this.found), label(this.found));
  }

  #drawModes() {
    if (this.found) this.modes.draw(modeTable(this.found, this.found.batch_sizes.indexOf(Number(byId("why_batch").value))));
  }
}

/** A class of operators in words. */
function className(name) {
  return known(`class_${name}`) ? t(`class_${name}`) : name.replaceAll("_", " ");
}

/** The time that the classes add up to: the GPU's, or a whole iteration's where the method tells no part of it. */
function wholes(found) {
  return isWhole(found) ? found.iteration_time_ms : found.gpu_time_ms;
}

function isWhole(found) {
  return found.gpu_time_ms.some((ms) => ms === null);
}

function facts(found) {
  if (isWhole(found)) return [t("fact_whole", { method: found.method }), ...methodErrors(found)];
  const told = boundGroups(found).map(([bound, batches]) => t("fact_bound", { bound: t(`bound_${bound}`), batches }));
  const law = found.small_batch_law;
  if (law) {
    const values = { low: count(law.from_batch_size), high: count(law.up_to_batch_size), time: duration(law.iteration_time_ms / 1000) };
    told.push(t("fact_law", { ...values, bound: t(`bound_${law.because}`) }));
    if (law.k_s !== null) told.push(t("fact_law_epoch", { k: duration(law.k_s) }));
  }
  for (const paid of found.pays_for) told.push(t("fact_pays", { ...paid, ms: number(paid.saves_ms.at(-1)) }));
  if (found.pays_for.length > 1) told.push(t("fact_pays_each"));
  for (const best of new Set(found.forms.map((form) => form.best))) told.push(formFact(found, best));
  for (const each of found.switches.slice(0, MOST_SWITCHES)) {
    const values = { low: each.from_batch_size, high: each.to_batch_size, factor: number(each.factor) };
    told.push(t(each.before === null ? "fact_switch_alone" : "fact_switch", { layer: `${each.layer} ${each.part ?? ""}`.trim(), before: each.before, after: each.after, ...values }));
  }
  return told;
}

/** What a better form saves of the GPU's time, by which layers, and whether the host then bounds the iteration. */
function formFact(found, best) {
  const alike = found.forms.filter((form) => form.best === best);
  const [{ saves_ms }] = alike;
  const layers = alike.map((form) => t("fact_form_layers", { ...form, ms: number(form.ms), best_ms: number(form.best_ms) })).join("; ");
  const told = t("fact_form", { best, layers, saves_ms: number(saves_ms) });
  return found.host_time_ms.at(-1) < found.gpu_time_ms.at(-1) - saves_ms ? told : `${told} ${t("fact_form_host")}`;
}

/** The error of a method that was named, beside the default's; in the service's words. */
function methodErrors(found) {
  return [...new Set(found.extrapolates.flat().filter(({ kind }) => kind === "method").map(({ text }) => `${text}.`))];
}

/** Neighbouring batch sizes that wait for the same, as [what, sizes in words]. */
function boundGroups({ bound, batch_sizes }) {
  const groups = [];
  bound.forEach((name, i) => {
    const last = groups[groups.length - 1];
    if (last?.name === name) last.high = batch_sizes[i];
    else groups.push({ name, low: batch_sizes[i], high: batch_sizes[i] });
  });
  return groups.map(({ name, low, high }) => [name, low === high ? count(low) : t("to", { low: count(low), high: count(high) })]);
}

function classTable(found) {
  const rows = Object.entries(found.classes).map(([name, times]) => ({ name: className(name), times }));
  if (isWhole(found)) rows.push({ name: t("iteration_time"), times: found.iteration_time_ms });
  else rows.push({ name: t("gpu_total"), times: found.gpu_time_ms }, { name: t("host_time"), times: found.host_time_ms });
  const columns = [
    { key: "name", title: t("class"), text: true, head: true, value: (row) => row.name, cell: (row) => row.name },
    ...found.batch_sizes.map((size, i) => ({
      key: `batch_${size}`, title: count(size), value: (row) => row.times[i], cell: (row) => number(row.times[i]),
    })),
  ];
  return { caption: t("classes_title"), columns, rows };
}

function modeTable(found, at) {
  const now = { precision: found.precision, float32_matmul_precision: found.float32_matmul_precision, memory_format: found.memory_format, factor: 1, low: null, high: null, extrapolates: found.extrapolates[at], now: true };
  const others = found.other_modes.map((mode) => ({ ...mode, factor: mode.factor[at], low: mode.low[at], high: mode.high[at] }));
  const rows = [now, ...others].sort((a, b) => a.factor - b.factor);
  const factor = (row) => (row.now ? t("now") : `${number(row.factor, 2)} × (${number(row.low, 2)}–${number(row.high, 2)})`);
  const columns = [
    { key: "precision", title: t("precision"), text: true, head: true, value: (row) => row.precision, cell: (row) => t(row.precision === "tf32" && row.float32_matmul_precision === "high" ? "precision_tf32_high" : `precision_${row.precision}`) },
    { key: "memory_format", title: t("memory_format"), text: true, value: (row) => row.memory_format, cell: (row) => t(`memory_format_${row.memory_format}`) },
    { key: "factor", title: t("factor"), value: (row) => row.factor, cell: factor },
    { key: "time", title: t("iteration_time"), value: (row) => row.factor, cell: (row) => duration((row.factor * found.iteration_time_ms[at]) / 1000) },
    { key: "marks", title: t("marks"), text: true, value: (row) => row.extrapolates.length, cell: (row) => extrapolationMark(row) ?? "–" },
  ];
  return { caption: t("modes_title"), columns, rows };
}

function label(found) {
  const at = found.batch_sizes.length - 1;
  const [name, times] = Object.entries(found.classes).sort((a, b) => b[1][at] - a[1][at])[0];
  const share = number((100 * times[at]) / wholes(found)[at], 2);
  return t("why_label", { gpu: shortGpu(found.gpu), class: className(name), share, batch: count(found.batch_sizes[at]) });
}

/** Bars of the larger classes, the longest at the bottom; the rest together. */
function bars(found) {
  const all = wholes(found);
  const large = Object.entries(found.classes).filter(([, times]) => times.some((ms, i) => Math.abs(ms) >= LEAST_SHARE * all[i])).slice(0, 7);
  const names = large.map(([name]) => className(name));
  const points = found.batch_sizes.flatMap((batch, i) => {
    const parts = large.map(([name, times], order) => bar(className(name), order, batch, times[i], all[i]));
    const rest = all[i] - parts.reduce((sum, part) => sum + part.whole, 0);
    return Math.abs(rest) > 1e-6 * all[i] ? [...parts, bar(t("class_other"), parts.length, batch, rest, all[i])] : parts;
  });
  return { names: points.some((each) => each.order === names.length) ? [...names, t("class_other")] : names, points };
}

function bar(name, order, batch, ms, all) {
  const tip = {
    name, [t("batch_size")]: count(batch), [t("iteration_time")]: duration(ms / 1000), "%": number((100 * ms) / all, 2),
  };
  return { name, order, batch, whole: ms, ms: ms / batch, tip };
}

function spec(found) {
  const { names, points } = bars(found);
  const told = isWhole(found) ? [] : found.batch_sizes;
  const host = told.map((batch, i) => ({
    batch, ms: found.host_time_ms[i] / batch, tip: { name: t("host_time"), [t("batch_size")]: count(batch), [t("iteration_time")]: duration(found.host_time_ms[i] / 1000) },
  }));
  const x = { field: "batch", type: "ordinal", axis: { title: t("batch_axis"), labelAngle: 0, labelOverlap: true }, scale: { paddingInner: 0.35, paddingOuter: 0.2 } };
  const y = { field: "ms", type: "quantitative", axis: { title: t("why_axis"), tickCount: 6 } };
  return {
    height: 300,
    layer: [
      { data: { values: points }, mark: { type: "bar", stroke: tone("card"), strokeWidth: 1 },
        encoding: { x, y, order: { field: "order" }, tooltip: { field: "tip" },
          color: { field: "name", type: "nominal", sort: names, scale: { domain: names, range: names.map((_, i) => look(i).color) },
            legend: { title: null, orient: "top", direction: "horizontal", columns: legendColumns("why-chart", names.length, 120), symbolType: "square", symbolStrokeWidth: 0, offset: 8 } } } },
      ...[[7, "card"], [3, "ink"]].map(([thickness, color]) => ({
        data: { values: host }, mark: { type: "tick", thickness, color: tone(color), opacity: 1 }, encoding: { x, y, tooltip: { field: "tip" } },
      })),
    ],
  };
}
