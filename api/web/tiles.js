/**
 * The answer in a line each: the cheapest, the fastest, and the cheapest within budget and deadline.
 * Called by main.js; calls dom, format and i18n.
 */
import { byId, make } from "./dom.js";
import { count, dollars, duration, durations, shortGpu } from "./format.js";
import { t } from "./i18n.js";

/** @param {object[]} rows of comparisons @param {{budget: ?number, deadline: ?number}} limits */
export function drawTiles(rows, limits) {
  const priced = rows.filter((row) => row.fits_in_memory && row.total_cost_usd !== null);
  const tiles = [
    tile("cheapest", least(priced, (row) => row.total_cost_usd)),
    tile("fastest", least(priced, (row) => row.total_time_h)),
  ];
  if (limits.budget || limits.deadline) tiles.push(withinTile(priced));
  byId("tiles").replaceChildren(...tiles.filter(Boolean));
}

function withinTile(rows) {
  const within = rows.filter((row) => row.within_budget !== false && row.within_deadline !== false);
  if (within.length) return tile("within", least(within, (row) => row.total_cost_usd));
  return make("div", { class: "tile" }, make("h2", { text: t("within") }), make("strong", { text: t("within_none") }), make("p", { text: t("within_none_hint") }));
}

function tile(title, row) {
  if (!row) return null;
  const values = { cost: dollars(row.total_cost_usd), time: duration(row.total_time_h * 3600), epochs: count(row.epochs), batch: count(row.batch_size) };
  return make(
    "div",
    { class: "tile" },
    make("h2", { text: t(title) }),
    make("strong", { text: `${shortGpu(row.gpu)} · ${row.offer}` }),
    make("p", { text: t("tile_cost", values) }),
    make("p", {}, `${t("interval")}: ${interval(row)} `, extrapolates(row)),
  );
}

/** The time of all epochs, as far off as that of one. */
function interval(row) {
  const seconds = row.total_time_h * 3600;
  return durations((seconds * row.epoch_low_s) / row.epoch_time_s, (seconds * row.epoch_high_s) / row.epoch_time_s, seconds);
}

function extrapolates(row) {
  const n = row.extrapolates.length;
  return n ? make("span", { class: "badge warn", text: t("extrapolates", { n }), title: row.extrapolates.join("; ") }) : null;
}

function least(rows, value) {
  return rows.reduce((best, row) => (best === null || value(row) < value(best) ? row : best), null);
}
