/**
 * The answer in a line each: the cheapest within budget and deadline, the cheapest and the fastest. What stands on
 * measurements comes first; what is better only if an extrapolation holds comes after it and says so.
 * Called by main.js; calls dom, format and i18n.
 */
import { byId, make } from "./dom.js";
import { count, dollars, duration, durations, epochCount, reasonText, shortGpu } from "./format.js";
import { t } from "./i18n.js";

/** Titles: of what is best however one looks, of the best that was measured, of the best if an extrapolation holds. */
const CHEAPEST = ["cheapest", "cheapest_measured", "cheapest_extrapolated"];
const FASTEST = ["fastest", "fastest_measured", "fastest_extrapolated"];

/**
 * @param {object[]} rows of comparisons
 * @param {{budget: ?number, deadline: ?number}} limits
 * @param {Set<string>} measured names of GPUs
 */
export function drawTiles(rows, limits, measured) {
  const priced = rows.filter((row) => row.fits_in_memory && row.total_cost_usd !== null);
  const best = [...bestOf(priced, CHEAPEST, cost, measured), ...bestOf(priced, FASTEST, time, measured)];
  const found = [...withinLimits(priced, limits, measured), ...best.filter((each) => each.sure), ...best.filter((each) => !each.sure)];
  const titles = new Map();
  for (const { title, row } of found) titles.set(row, [...(titles.get(row) ?? []), t(title)]);
  byId("tiles").replaceChildren(...[...titles].map(([row, words]) => (row ? tile(words.join(" · "), row) : noneWithin())));
}

const cost = (row) => row.total_cost_usd;
const time = (row) => row.total_time_h;

/** The best of those that are surest, and the best of all where that is another one. */
function bestOf(rows, [plain, among, beyond], value, measured) {
  const [sure, all] = [least(surest(rows, measured), value), least(rows, value)];
  if (!all) return [];
  if (sure === all) return [{ title: plain, row: all, sure: true }];
  return [{ title: among, row: sure, sure: true }, { title: beyond, row: all, sure: false }];
}

function withinLimits(rows, limits, measured) {
  if (!limits.budget && !limits.deadline) return [];
  const within = rows.filter((row) => row.within_budget !== false && row.within_deadline !== false);
  const [sure, all] = [least(surest(within, measured), cost), least(within, cost)];
  return [{ title: sure === all ? "within" : "within_measured", row: sure }];
}

/** Rows that extrapolate nothing; where there are none, those of measured GPUs; else all. */
function surest(rows, measured) {
  const steps = [(row) => !row.extrapolates.length, (row) => measured.has(row.gpu)];
  return steps.map((sure) => rows.filter(sure)).find((some) => some.length) ?? rows;
}

function noneWithin() {
  return make("div", { class: "tile" }, make("h2", { text: t("within") }), make("strong", { text: t("within_none") }), make("p", { text: t("within_none_hint") }));
}

function tile(title, row) {
  const values = { cost: dollars(row.total_cost_usd), time: duration(row.total_time_h * 3600), epochs: epochCount(row.epochs), batch: count(row.batch_size), precision: t(`precision_${row.precision}`) };
  return make(
    "div",
    { class: "tile" },
    make("h2", { text: title }),
    make("strong", { text: shortGpu(row.gpu) }),
    make("p", { class: "instance", text: row.offer }),
    make("p", { text: t("tile_cost", values) }),
    make("p", {}, `${t("interval")}: ${interval(row)} `, ...broken(row), extrapolates(row)),
    rented(row),
  );
}

/** Which limits a row breaks. */
function broken(row) {
  return [["within_budget", "over_budget"], ["within_deadline", "over_deadline"]]
    .filter(([within]) => row[within] === false)
    .map(([, word]) => make("span", { class: "badge bad", text: t(word) }));
}

/** How many GPUs are paid for and how many of them train, where there is more than one. */
function rented({ offer_gpu_count, gpus_used }) {
  if (!(offer_gpu_count > 1)) return null;
  const words = gpus_used >= offer_gpu_count ? "rented_all" : gpus_used === 1 ? "rented_one" : "rented";
  return make("p", { class: words === "rented_all" ? null : "rented", text: t(words, { rented: count(offer_gpu_count), used: count(gpus_used) }) });
}

/** The interval of the time of all epochs. */
function interval(row) {
  return durations(...[row.total_low_h, row.total_high_h, row.total_time_h].map((hours) => 3600 * hours));
}

function extrapolates(row) {
  const n = row.extrapolates.length;
  return n ? make("span", { class: "badge warn", text: t("extrapolates", { n }), title: row.extrapolates.map(reasonText).join("; ") }) : null;
}

function least(rows, value) {
  return rows.reduce((best, row) => (best === null || value(row) < value(best) ? row : best), null);
}
