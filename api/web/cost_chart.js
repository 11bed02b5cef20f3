/**
 * Cost against time of the whole training, a mark for each offer, a line along the Pareto front.
 * Called by main.js; calls charts, format and i18n.
 */
import { decimalTicks, draw, drawNothing, legendColumns, PROVIDER_SHAPES, timeAxis, timeTicks, tone } from "./charts.js";
import { byId } from "./dom.js";
import { count, dollars, duration, durations, epochCount, shortGpu } from "./format.js";
import { t } from "./i18n.js";

const HOUR = 3600;
const HEIGHT = 380;
const AXIS = 75; // pixels, about, that the y axis takes
const LETTER = 7.2; // pixels, about, of a letter of a label
const PLACES = [["left", 9, -12], ["right", -9, -12], ["left", 9, 13], ["right", -9, 13], ["left", 12, 0], ["left", 9, -27], ["right", -9, -27]];

/**
 * Draw an answer.
 * @param {object[]} rows of comparisons
 * @param {{budget: ?number, deadline: ?number}} limits in US$ and hours
 * @param {?{gpu: string, offer: string}} best what the decision recommends
 */
export function drawCostChart(rows, limits, best) {
  const points = rows.filter((row) => row.total_cost_usd !== null && row.fits_in_memory).map((row) => point(row, best));
  if (!points.length) return drawNothing("cost-chart", t("cost_nothing"));
  const pareto = points.filter((each) => each.pareto).length;
  return draw("cost-chart", spec(points, limits, rows[0]?.epochs ?? 1), t("cost_label", { n: points.length, pareto }));
}

function point(row, best) {
  const [low, high] = [row.total_low_h / row.total_time_h, row.total_high_h / row.total_time_h];
  const seconds = row.total_time_h * HOUR;
  return {
    pareto: row.pareto,
    best: best?.gpu === row.gpu && best.offer === row.offer,
    within: row.within_budget !== false && row.within_deadline !== false,
    label: best?.gpu === row.gpu && best.offer === row.offer ? `${shortGpu(row.gpu)}: ${t("recommended")}` : shortGpu(row.gpu),
    provider: row.offer.split(" ")[0],
    time: seconds,
    cost: row.total_cost_usd,
    low: seconds * low, high: seconds * high, cheap: row.total_cost_usd * low, dear: row.total_cost_usd * high,
    tip: {
      gpu: shortGpu(row.gpu),
      [t("offer")]: row.offer,
      [t("total_cost")]: dollars(row.total_cost_usd),
      [t("total_time")]: duration(seconds),
      [t("interval")]: durations(seconds * low, seconds * high, seconds),
      [t("precision")]: t(`precision_${row.precision}`),
      [t("batch_size")]: count(row.batch_size),
      [t("hourly")]: dollars(row.usd_per_hour),
      ...(row.extrapolates.length ? { [t("marks")]: t("extrapolates", { n: row.extrapolates.length }) } : {}),
    },
  };
}

function spec(points, limits, epochs) {
  const front = points.filter((each) => each.pareto);
  const named = points.filter((each) => each.pareto || each.best).sort((a, b) => b.best - a.best);
  const times = points.map((each) => each.time).concat(front.flatMap((each) => [each.low, each.high]));
  const costs = points.map((each) => each.cost).concat(front.flatMap((each) => [each.cheap, each.dear]));
  if (limits.deadline) times.push(limits.deadline * HOUR);
  if (limits.budget) costs.push(limits.budget);
  placeLabels(named, points, range(times), range(costs));
  const x = { field: "time", type: "quantitative", scale: { type: "log", nice: false, domain: range(times) },
    axis: timeAxis(timeTicks(times), t("time_total_axis", { epochs: epochCount(epochs) }), { labelOverlap: true, grid: true }) };
  const y = { field: "cost", type: "quantitative", scale: { type: "log", nice: false, domain: range(costs) },
    axis: { title: t("cost_total_axis"), values: decimalTicks(costs), format: ",~r" } };
  const front_color = tone("accent");
  const providers = new Set(points.map((each) => each.provider)).size;
  return {
    height: HEIGHT,
    layer: [
      ...limitLines(limits, x, y),
      { data: { values: front }, mark: { type: "rule", color: front_color, opacity: 0.35, strokeWidth: 1.5 },
        encoding: { x: { ...x, field: "low" }, x2: { field: "high" }, y: { ...y, field: "cheap" }, y2: { field: "dear" } } },
      { data: { values: front }, mark: { type: "line", color: front_color, strokeWidth: 2, strokeJoin: "round" },
        encoding: { x, y, order: { field: "time" } } },
      { data: { values: points }, mark: { type: "point", filled: true, size: 85 },
        encoding: { x, y, tooltip: { field: "tip" },
          color: { condition: { test: "datum.pareto", value: front_color }, value: tone("edge") },
          opacity: { condition: { test: "datum.within", value: 1 }, value: 0.45 },
          shape: { field: "provider", type: "nominal", scale: { range: PROVIDER_SHAPES }, legend: { title: t("provider"), orient: "top", direction: "horizontal", columns: legendColumns("cost-chart", providers, 85), offset: 4 } } } },
      { data: { values: points.filter((each) => each.best) }, mark: { type: "point", filled: false, shape: "circle", size: 330, strokeWidth: 2.5, color: tone("good") },
        encoding: { x, y } },
      ...[{ stroke: tone("card"), strokeWidth: 4, strokeJoin: "round" }, {}].map((under) => ({
        data: { values: named },
        mark: { type: "text", align: { expr: "datum.align" }, baseline: "middle", dx: { expr: "datum.dx" }, dy: { expr: "datum.dy" }, fontWeight: 600, ...under },
        encoding: { x, y, text: { field: "label" } },
      })),
    ],
  };
}

/** Give each label, the recommended one first, the first place around its mark where it covers nothing; none where there is none. */
function placeLabels(named, points, times, costs) {
  const width = Math.max(150, byId("cost-chart").clientWidth - AXIS);
  const at = (value, [low, high]) => Math.log(value / low) / Math.log(high / low);
  const marks = points.map((each) => ({ each, x: at(each.time, times) * width, y: (1 - at(each.cost, costs)) * HEIGHT }));
  const taken = marks.map(({ x, y }) => [x - 5, y - 5, x + 5, y + 5]);
  for (const { each, x, y } of named.map((each) => marks[points.indexOf(each)])) {
    const boxes = PLACES.map(([align, dx, dy]) => labelBox(align, x + dx, y + dy, each.label));
    const free = boxes.findIndex((box) => box[0] >= 0 && box[2] <= width && box[1] >= 0 && !taken.some((other) => overlap(box, other)));
    if (free < 0) each.label = ""; // the table and the mark's tooltip name it
    [each.align, each.dx, each.dy] = PLACES[Math.max(0, free)];
    if (free >= 0) taken.push(boxes[free]);
  }
}

function labelBox(align, x, y, text) {
  const width = text.length * LETTER;
  const left = align === "left" ? x : x - width;
  return [left, y - 8, left + width, y + 8];
}

function overlap(a, b) {
  return a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
}

function limitLines({ budget, deadline }, x, y) {
  const look = { type: "rule", strokeDash: [5, 4], color: tone("bad"), strokeWidth: 1.5 };
  const words = { type: "text", color: tone("bad") };
  const found = [];
  if (budget) {
    const data = { values: [{ cost: budget, text: `${t("budget_line")} ${dollars(budget)}` }] };
    found.push({ data, mark: look, encoding: { y } });
    found.push({ data, mark: { ...words, align: "right", x: "width", dx: -4, dy: -8 }, encoding: { y, text: { field: "text" } } });
  }
  if (deadline) {
    const data = { values: [{ time: deadline * HOUR, text: `${t("deadline_line")} ${duration(deadline * HOUR)}` }] };
    found.push({ data, mark: look, encoding: { x } });
    found.push({ data, mark: { ...words, align: "left", y: 4, baseline: "top", dx: 6 }, encoding: { x, text: { field: "text" } } });
  }
  return found;
}

function range(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = Math.max(1.15, (high / low) ** 0.05);
  return [low / room, high * room];
}
