/**
 * Columns of the two tables: predictions and offers.
 * Called by main.js; calls format, i18n and dom. Every mark has words: colour says nothing alone.
 */
import { make } from "./dom.js";
import { count, dollars, duration, durations, energy, grams, number, reasonText, shortGpu } from "./format.js";
import { said, t } from "./i18n.js";

/** @param {boolean} several CNNs are answered @returns {import("./table.js").Column[]} of predictions */
export function predictionColumns(several = false) {
  return [
    { key: "gpu", title: t("gpu"), text: true, head: true, line: true, value: (row) => row.gpu, cell: (row) => shortGpu(row.gpu) },
    ...(several ? [{ key: "cnn", title: t("cnn"), text: true, line: true, value: (row) => row.cnn, cell: (row) => `${row.cnn}@${row.image_size}` }] : []),
    precisionColumn(),
    { key: "batch_size", title: t("batch_size"), line: true, value: (row) => row.batch_size, cell: (row) => count(row.batch_size) },
    { ...epochColumn(), line: true },
    { key: "epoch_low_s", title: t("interval"), value: (row) => row.epoch_low_s, cell: (row) => durations(row.epoch_low_s, row.epoch_high_s, row.epoch_time_s) },
    { key: "cost_usd", title: t("cost_epoch"), line: true, value: (row) => row.cost_usd, cell: (row) => dollars(row.cost_usd) },
    { key: "marks", title: t("marks"), text: true, value: (row) => row.extrapolates.length, cell: predictionMarks },
    ...[memoryColumn(),
    { key: "iteration_time_ms", title: t("iteration_time"), value: (row) => row.iteration_time_ms, cell: (row) => duration(row.iteration_time_ms / 1000) },
    startColumn(),
    { key: "throughput_samples_per_s", title: t("throughput"), value: (row) => row.throughput_samples_per_s, cell: (row) => number(row.throughput_samples_per_s) },
    { key: "method", title: t("measured_method"), text: true, value: (row) => row.method, cell: (row) => row.method },
    energyColumn("watt_hours", "energy_epoch"),
    co2Column("co2_g", "co2_epoch"),
    { key: "offer", title: t("offer"), text: true, value: (row) => row.offer, cell: (row) => row.offer || "–" }].map(extra),
  ];
}

/**
 * @param {object[]} rows all of the answer: intervals are drawn on one scale
 * @returns {import("./table.js").Column[]} of offers
 */
export function offerColumns(rows) {
  const scale = scaleOf(rows);
  return [
    { key: "rank", title: t("rank"), value: (row) => row.rank, cell: (row) => count(row.rank) },
    { key: "gpu", title: t("gpu"), text: true, head: true, line: true, value: (row) => row.gpu, cell: (row) => `${row.offer_gpu_count > 1 ? `${count(row.offer_gpu_count)}x ` : ""}${shortGpu(row.gpu)}` },
    { key: "offer", title: t("provider"), text: true, line: true, value: (row) => row.offer, cell: (row) => make("span", { text: shortOffer(row.offer) || t("no_price"), title: row.offer }) },
    { key: "usd_per_hour", title: t("hourly"), value: (row) => row.usd_per_hour, cell: (row) => dollars(row.usd_per_hour) },
    { key: "total_time_h", title: t("total_time"), line: true, value: (row) => row.total_time_h, cell: (row) => duration(row.total_time_h * 3600) },
    { key: "total_cost_usd", title: t("total_cost"), line: true, value: (row) => row.total_cost_usd, cell: (row) => dollars(row.total_cost_usd) },
    { key: "total_low_h", title: t("interval"), value: (row) => row.total_low_h, cell: (row) => [bar(row, scale), make("span", { class: "ends", text: durations(3600 * row.total_low_h, 3600 * row.total_high_h, 3600 * row.total_time_h) })] },
    { key: "peak_memory_gib", title: t("memory"), value: (row) => row.peak_memory_gib, cell: (row) => `${number(row.peak_memory_gib)} ${t("gib")}` },
    { key: "measured", title: t("is_measured"), text: true, value: (row) => row.extrapolates.length, cell: (row) => extrapolationMark(row) ?? badge("good", t("measured_yes")) },
    { key: "vcpus", title: t("host_vcpus"), value: (row) => row.vcpus, cell: (row) => count(row.vcpus) },
    { key: "marks", title: t("marks"), text: true, value: (row) => row.misses_by, cell: offerMarks },
    ...[precisionColumn(),
    { key: "batch_size", title: t("batch_size"), value: (row) => row.batch_size, cell: (row) => count(row.batch_size) },
    epochColumn(),
    startColumn(),
    energyColumn("total_watt_hours", "energy_total"),
    co2Column("total_co2_g", "co2_total"),
    { key: "region", title: t("region"), text: true, value: (row) => row.region, cell: (row) => row.region ?? "–" },
    { key: "method", title: t("measured_method"), text: true, value: (row) => row.method, cell: (row) => row.method }].map(extra),
  ];
}

/** An offer beside its GPU: without what the GPU says already; marketplaces are named. @param {string} offer */
function shortOffer(offer) {
  return offer.replace(/^(\S+) \d+x .*?( \((?:marketplace.*|Community Cloud)\))?$/, "$1$2").replace(/ Standard_/, " ").replace("-standard-", "-std-");
}

/** Who rents an offer out. @param {{offer: string}} row */
export const providerOf = (row) => row.offer.split(" ")[0];

/** Where a time lies between the shortest and the longest of all intervals, in percent, on a logarithmic scale. */
function scaleOf(rows) {
  const [low, high] = [Math.min(...rows.map((row) => row.total_low_h)), Math.max(...rows.map((row) => row.total_high_h))].map(Math.log);
  return (hours) => (high > low ? (100 * (Math.log(hours) - low)) / (high - low) : 50);
}

/** The interval of a row as a bar with a mark at the estimate; its numbers stand beside it. */
function bar(row, scale) {
  const [range, middle] = [make("i"), make("b")];
  const [from, to] = [scale(row.total_low_h), scale(row.total_high_h)];
  range.style.left = `${from}%`;
  range.style.width = `${to - from}%`;
  middle.style.left = `${scale(row.total_time_h)}%`;
  return make("span", { class: "bar", "aria-hidden": "true" }, range, middle);
}

/** A column that is shown with all columns only. */
function extra(column) {
  return { ...column, extra: true };
}

function precisionColumn() {
  return { key: "precision", title: t("precision"), text: true, value: (row) => row.precision, cell: (row) => t(`precision_${row.precision}`) };
}

function epochColumn() {
  return { key: "epoch_time_s", title: t("epoch_time"), value: (row) => row.epoch_time_s, cell: (row) => duration(row.epoch_time_s) };
}

/** What the first epoch takes longer; pointing at the heading or at a missing one says what it is and where it is known. */
function startColumn() {
  const cell = (row) => (row.start_s === null ? make("span", { text: "–", title: t("start_hint") }) : duration(row.start_s));
  return { key: "start_s", title: t("start"), hint: t("start_hint"), value: (row) => row.start_s, cell };
}

function memoryColumn() {
  return {
    key: "peak_memory_gib",
    title: t("memory"),
    value: (row) => row.peak_memory_gib,
    cell: (row) => [`${number(row.peak_memory_gib)} ${t("gib")} `, badge(row.fits_in_memory ? "good" : "bad", t(row.fits_in_memory ? "fits" : "fits_not"))],
  };
}

/** Energy of the GPUs, ≈ where it is estimated from the power limit; pointing at it says so in the service's English. */
function energyColumn(key, title) {
  const estimated = (row) => row[key] !== null && row.energy_basis.kind === "estimated";
  const cell = (row) => make("span", { text: `${estimated(row) ? "≈ " : ""}${energy(row[key])}`, title: row.energy_basis.text });
  return { key, title: t(title), value: (row) => row[key], cell };
}

/** CO2 of that energy; pointing at it names the grid, or why it is not known, in the service's English. */
function co2Column(key, title) {
  const cell = (row) => make("span", { text: grams(row[key]), title: row.co2_basis.text });
  return { key, title: t(title), value: (row) => row[key], cell };
}

function predictionMarks(row) {
  return marks(row, row.best_batch ? [badge("good", t("best_batch"), t("best_batch_hint"))] : []);
}

function offerMarks(row) {
  return waitsAndSize(row, [
    row.pareto ? badge("good", t("pareto")) : null,
    row.within_budget === false ? badge("bad", t("over_budget")) : null,
    row.within_deadline === false ? badge("bad", t("over_deadline")) : null,
  ].filter(Boolean));
}

function marks(row, badges) {
  const mark = extrapolationMark(row);
  const found = [...waitsAndSize(row, badges).filter((each) => each !== "–"), ...(mark ? [mark] : [])];
  return found.length ? found : ["–"];
}

/** Badges, and whether the training is too large for the GPU or waits for images. */
function waitsAndSize(row, badges) {
  const large = row.fits_in_memory ? [] : [badge("bad", t("fits_not"))];
  const waits = ["loading", "reading"].includes(row.bottleneck) ? [badge("bad", t("waits_for_images"), t("waits_for_images_hint"))] : [];
  const found = [...badges, ...large, ...waits];
  return found.length ? found : ["–"];
}

/** That a row extrapolates, with its reasons to unfold; null if it does not. @param {{extrapolates: {kind: string, text: string, remedy: ?string}[]}} row @param {string} [text] */
export function extrapolationMark(row, text = t("extrapolates", { n: row.extrapolates.length })) {
  if (!row.extrapolates.length) return null;
  const items = row.extrapolates.map(({ kind, text: reason, remedy }) => {
    const { text, lang } = said(reason);
    return make("li", { lang, text: lang === "en" ? reasonText({ kind, text }) : text, title: remedy });
  });
  const reasons = make("ul", {}, ...items);
  return make("details", {}, make("summary", { text }), reasons);
}

function badge(kind, text, title = null) {
  return make("span", { class: `badge ${kind}`, text, title });
}
