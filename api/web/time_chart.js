/**
 * Time of an epoch against batch size, a line for each GPU, and a band for the one pointed at; buttons show and hide them.
 * Called by main.js; calls charts, format and i18n.
 */
import { draw, drawNothing, look, timeAxis, timeTicks } from "./charts.js";
import { byId, make } from "./dom.js";
import { count, duration, durations, number, shortGpu } from "./format.js";
import { t } from "./i18n.js";

const MOST_SHOWN = 8; // at first: more lines than that, nobody can tell apart
const NS = "http://www.w3.org/2000/svg";
const PATHS = {
  circle: "M7 2a5 5 0 1 1 0 10a5 5 0 1 1 0-10z", square: "M2.500 2.500h9v9h-9z", "triangle-up": "M7 2l5.500 9.500h-11z", diamond: "M7 1l5 6l-5 6l-5-6z",
  cross: "M5 2h4v3h3v4h-3v3h-4v-3h-3v-4h3z", "triangle-down": "M7 12l5.500-9.500h-11z", "triangle-right": "M12 7l-9.500-5.500v11z", "triangle-left": "M2 7l9.500-5.500v11z",
};

/** The chart and which GPUs it shows. */
export class TimeChart {
  constructor() {
    this.rows = [];
    this.shown = new Set();
    this.view = null;
  }

  /** Show an answer. @param {object[]} rows of predictions */
  load(rows) {
    const before = this.gpus?.join() ?? "";
    this.rows = rows;
    this.gpus = [...new Set(rows.map((row) => row.gpu))];
    if (before !== this.gpus.join()) this.shown = new Set(this.#fastest().slice(0, MOST_SHOWN));
    return this.draw();
  }

  /** Draw again, as after a change of size, language or colours. */
  async draw() {
    if (!this.rows.length) return;
    this.#legend();
    const points = this.#points();
    if (!points.length) {
      this.view = null;
      drawNothing("time-chart", t("time_nothing"));
      return;
    }
    this.view = await draw("time-chart", spec(points, this.gpus), this.#label(points));
  }

  #fastest() {
    const best = new Map();
    for (const row of this.rows) best.set(row.gpu, Math.max(best.get(row.gpu) ?? 0, row.throughput_samples_per_s));
    return [...this.gpus].sort((a, b) => best.get(b) - best.get(a));
  }

  #points() {
    const epochs = this.rows.every((row) => row.epoch_time_s !== null);
    return this.rows.filter((row) => this.shown.has(row.gpu)).map((row) => point(row, epochs));
  }

  #label(points) {
    const fitting = points.filter((each) => each.fits);
    const best = [...(fitting.length ? fitting : points)].sort((a, b) => a.time - b.time)[0];
    return t("time_label", { gpus: this.shown.size, best: duration(best.time), gpu: best.gpu, batch: best.batch });
  }

  #legend() {
    const focused = document.activeElement?.dataset?.gpu;
    byId("time-legend").replaceChildren(...this.gpus.map((gpu, place) => this.#button(gpu, place)));
    if (focused) [...byId("time-legend").children].find((each) => each.dataset.gpu === focused)?.focus();
  }

  #button(gpu, place) {
    const button = make("button", { type: "button", "aria-pressed": String(this.shown.has(gpu)), "data-gpu": gpu }, symbol(look(place)), shortGpu(gpu));
    button.addEventListener("click", () => {
      if (!this.shown.delete(gpu)) this.shown.add(gpu);
      this.draw();
    });
    for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => this.#highlight(gpu));
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => this.#highlight(null));
    return button;
  }

  #highlight(gpu) {
    this.view?.signal("highlight", this.shown.has(gpu) ? gpu : null).runAsync();
  }
}

function point(row, epochs) {
  const [time, low, high] = epochs
    ? [row.epoch_time_s, row.epoch_low_s, row.epoch_high_s]
    : [row.iteration_time_ms / 1000, row.low_ms / 1000, row.high_ms / 1000];
  const extrapolates = row.extrapolates.length > 0;
  return {
    epochs, gpu: row.gpu, batch: row.batch_size, time, low, high, fits: row.fits_in_memory, extrapolates,
    tip: {
      gpu: shortGpu(row.gpu),
      [t("precision")]: t(`precision_${row.precision}`),
      [t("batch_size")]: count(row.batch_size),
      [t(epochs ? "epoch_time" : "iteration_time")]: duration(time),
      [t("interval")]: durations(low, high, time),
      [t("memory")]: `${number(row.peak_memory_gib)} ${t("gib")}, ${t(row.fits_in_memory ? "fits" : "fits_not")}`,
      ...(extrapolates ? { [t("marks")]: t("extrapolates", { n: row.extrapolates.length }) } : {}),
    },
  };
}

function spec(points, gpus) {
  const looks = gpus.map((_, place) => look(place));
  const batches = [...new Set(points.map((each) => each.batch))].sort((a, b) => a - b);
  const ticks = timeTicks(points.flatMap((each) => [each.low, each.high]));
  const title = t(points[0]?.epochs === false ? "iteration_axis" : "time_axis");
  const lit = "highlight === null || datum.gpu === highlight";
  const alone = new Set(points.map((each) => each.gpu)).size === 1;
  const series = {
    x: { field: "batch", type: "quantitative", scale: { type: "log", base: 2, nice: false, padding: 14 },
      axis: { title: t("batch_axis"), values: batches, format: "d", grid: false, labelOverlap: true } },
    color: { field: "gpu", type: "nominal", legend: null, scale: { domain: gpus, range: looks.map((each) => each.color) } },
  };
  const y = { field: "time", type: "quantitative", scale: { type: "log", nice: false }, axis: timeAxis(ticks, title) };
  return {
    height: 360,
    data: { values: points },
    params: [{ name: "highlight", value: null }],
    encoding: series,
    layer: [
      { mark: { type: "area", clip: true },
        encoding: {
          y: { ...y, field: "low" }, y2: { field: "high" },
          opacity: { condition: [{ test: "datum.gpu === highlight", value: 0.25 }, { param: "pointed", empty: false, value: 0.25 }], value: alone ? 0.15 : 0 },
        } },
      { data: { values: segments(points) }, mark: { type: "rule", strokeWidth: 2, strokeCap: "round" },
        encoding: { y, x2: { field: "batch2" }, y2: { field: "time2" }, opacity: { condition: { test: lit, value: 1 }, value: 0.2 },
          strokeDash: { field: "extrapolates", type: "nominal", legend: null, scale: { domain: [false, true], range: [[1, 0], [6, 4]] } } } },
      { params: [{ name: "pointed", select: { type: "point", fields: ["gpu"], on: "pointerover", clear: "pointerout" } }],
        mark: { type: "point", size: 60, strokeWidth: 1.75 },
        encoding: { y, opacity: { condition: { test: lit, value: 1 }, value: 0.2 }, tooltip: { field: "tip" },
          shape: { field: "gpu", type: "nominal", legend: null, scale: { domain: gpus, range: looks.map((each) => each.shape) } },
          fill: { condition: { test: "datum.fits", field: "gpu", type: "nominal", legend: null, scale: { domain: gpus, range: looks.map((each) => each.color) } }, value: null } } },
    ],
  };
}

/** The pieces of each GPU's line, from one batch size to the next; dashed where either end extrapolates. */
function segments(points) {
  const sorted = [...points].sort((a, b) => a.batch - b.batch);
  return sorted.flatMap((from, place) => {
    const to = sorted.slice(place + 1).find((each) => each.gpu === from.gpu);
    return to ? [{ gpu: from.gpu, batch: from.batch, time: from.time, batch2: to.batch, time2: to.time, extrapolates: from.extrapolates || to.extrapolates }] : [];
  });
}

function symbol({ color, shape }) {
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", "0 0 14 14");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(NS, "path");
  path.setAttribute("d", PATHS[shape]);
  path.setAttribute("fill", color);
  svg.append(path);
  return svg;
}
