/**
 * Cost against time of the whole training, a mark for each offer, a line along the Pareto front.
 * Called by main.js; calls charts, format and i18n.
 */
import { decimalTicks, draw, timeAxis, timeTicks, tone } from "./charts.js";
import { count, dollars, duration, durations, number, shortGpu } from "./format.js";
import { t } from "./i18n.js";

const HOUR = 3600;

/**
 * Draw an answer.
 * @param {object[]} rows of comparisons
 * @param {{budget: ?number, deadline: ?number}} limits in US$ and hours
 */
export function drawCostChart(rows, limits) {
  const points = rows.filter((row) => row.total_cost_usd !== null && row.fits_in_memory).map(point);
  const pareto = points.filter((each) => each.pareto).length;
  return draw("cost-chart", spec(points, limits, rows[0]?.epochs ?? 1), t("cost_label", { n: points.length, pareto }));
}

function point(row) {
  const [low, high] = [row.epoch_low_s / row.epoch_time_s, row.epoch_high_s / row.epoch_time_s];
  const seconds = row.total_time_h * HOUR;
  return {
    pareto: row.pareto,
    within: row.within_budget !== false && row.within_deadline !== false,
    label: shortGpu(row.gpu),
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
      [t("batch_size")]: count(row.batch_size),
      [t("usd_per_hour")]: dollars(row.usd_per_hour),
      ...(row.extrapolates.length ? { [t("marks")]: t("extrapolates", { n: row.extrapolates.length }) } : {}),
    },
  };
}

function spec(points, limits, epochs) {
  const front = points.filter((each) => each.pareto);
  const times = points.map((each) => each.time).concat(front.flatMap((each) => [each.low, each.high]));
  const costs = points.map((each) => each.cost).concat(front.flatMap((each) => [each.cheap, each.dear]));
  if (limits.deadline) times.push(limits.deadline * HOUR);
  if (limits.budget) costs.push(limits.budget);
  const [first, last] = range(times).map(Math.log);
  for (const each of front) each.late = Math.log(each.time) > first + 0.55 * (last - first); // its label goes to the left
  const x = { field: "time", type: "quantitative", scale: { type: "log", nice: false, domain: range(times) },
    axis: timeAxis(timeTicks(times), t("time_total_axis", { epochs: count(epochs) }), { labelOverlap: true, grid: true }) };
  const y = { field: "cost", type: "quantitative", scale: { type: "log", nice: false, domain: range(costs) },
    axis: { title: t("cost_total_axis"), values: decimalTicks(costs), format: ",~r" } };
  const front_color = tone("accent");
  return {
    height: 360,
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
          shape: { field: "provider", type: "nominal", legend: { title: t("provider"), orient: "top", direction: "horizontal", offset: 4 } } } },
      ...[{ stroke: tone("card"), strokeWidth: 4, strokeJoin: "round" }, {}].map((under) => ({
        data: { values: front },
        mark: { type: "text", align: { expr: "datum.late ? 'right' : 'left'" }, baseline: "bottom", dx: { expr: "datum.late ? -6 : 8" }, dy: -6, fontWeight: 600, ...under },
        encoding: { x, y, text: { field: "label" } },
      })),
    ],
  };
}

function limitLines({ budget, deadline }, x, y) {
  const look = { type: "rule", strokeDash: [5, 4], color: tone("bad"), strokeWidth: 1.5 };
  const words = { type: "text", color: tone("bad") };
  const found = [];
  if (budget) {
    const data = { values: [{ cost: budget, text: `${t("budget_line")} $${number(budget, 6)}` }] };
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
