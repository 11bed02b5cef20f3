/**
 * Vega-Lite charts without eval, in the page's colours, with a tooltip of our own.
 * Called by time_chart.js, cost_chart.js and explanation.js; calls the vendored Vega (a global) and its interpreter of
 * expressions, so that the Content-Security-Policy needs no 'unsafe-eval'.
 */
import { byId, make } from "./dom.js";
import { duration } from "./format.js";
import { expressionInterpreter } from "./vendor/vega-interpreter-2.3.2.js";

const LIGHT = ["#0b62b3", "#c2410c", "#0f7b55", "#a8327d", "#8a6100", "#5b45c2", "#0e7490", "#5c6670"];
const DARK = ["#6db3ff", "#ff9c5b", "#4fd1a1", "#f08cc8", "#e8c04c", "#b3a1ff", "#4fd0e4", "#b3bcc7"];
const SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"];
const MORE_SHAPES = [ // paths between -1 and 1: an hourglass, an X, bars, a star, a hexagon
  "M-1,-1H1L-1,1H1Z", "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z",
  "M-.4,-1H.4V1H-.4Z", "M-1,-.4H1V.4H-1Z", "M0,-1L.87,-.5L.87,.5L0,1L-.87,.5L-.87,-.5Z",
  "M0,-1.1L.25,-.34L1.05,-.34L.4,.13L.65,.89L0,.42L-.65,.89L-.4,.13L-1.05,-.34L-.25,-.34Z",
];
const NICE_SECONDS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000,
  86400, 172800, 432000, 864000, 1728000, 4320000, 8640000, 31536000, 94608000, 315360000,
];
const darkness = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map();

/** The colour and shape of the nth series; they repeat after eight. @param {number} place */
export function look(place) {
  const palette = darkness.matches ? DARK : LIGHT;
  return { color: palette[place % palette.length], shape: SHAPES[place % SHAPES.length] };
}

/** Shapes of the providers, of whom there are more than colours. */
export const PROVIDER_SHAPES = [...SHAPES, ...MORE_SHAPES];

/** A colour of the page. @param {string} name such as "accent" */
export function tone(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Call back when the system turns dark or light. @param {() => void} redraw */
export function onThemeChange(redraw) {
  darkness.addEventListener("change", redraw);
}

/**
 * Draw a chart in a place, instead of the one there.
 * @param {string} id of the place
 * @param {object} spec Vega-Lite, without width
 * @param {string} label what a screen reader says
 * @returns {Promise<object>} its view
 */
export async function draw(id, spec, label) {
  const place = byId(id);
  place.setAttribute("aria-label", label);
  drawn.get(id)?.finalize();
  drawn.delete(id);
  const whole = { ...spec, width: Math.max(200, place.clientWidth), autosize: { type: "fit-x", contains: "padding" }, config: config() };
  const { vega, vegaLite } = globalThis;
  const runtime = vega.parse(vegaLite.compile(whole).spec, null, { ast: true });
  const view = new vega.View(runtime, { expr: expressionInterpreter, renderer: "svg", logLevel: vega.Error, loader: vega.loader({ baseURL: "" }) });
  view.tooltip(showTip).initialize(make("div"));
  drawn.set(id, view);
  await view.runAsync();
  if (drawn.get(id) !== view) return view; // another was drawn meanwhile
  place.replaceChildren(view.container());
  place.querySelector("svg")?.setAttribute("aria-hidden", "true");
  return view;
}

/** Say that there is nothing to draw. @param {string} id @param {string} text */
export function drawNothing(id, text) {
  drawn.get(id)?.finalize();
  drawn.delete(id);
  byId(id).setAttribute("aria-label", text);
  byId(id).replaceChildren(make("p", { class: "hint", text }));
}

/**
 * Ticks of a logarithmic axis of seconds at times that people think in.
 * @param {number[]} seconds values on the axis
 */
export function timeTicks(seconds) {
  const [low, high] = [Math.min(...seconds), Math.max(...seconds)];
  const inside = NICE_SECONDS.filter((tick) => tick >= low / 1.4 && tick <= high * 1.4);
  const every = Math.ceil(inside.length / 8);
  return inside.filter((_, i) => i % every === 0);
}

/** Ticks as an axis that shows them in words. @param {number[]} ticks in seconds */
export function timeAxis(ticks, title, more = {}) {
  const words = ticks.map((tick) => `datum.value === ${tick} ? ${JSON.stringify(duration(tick))} : `).join("");
  return { title, values: ticks, labelExpr: `${words}''`, ...more };
}

/** Ticks 1, 2, 5 of each power of ten. @param {number[]} values */
export function decimalTicks(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const found = [];
  for (let power = Math.floor(Math.log10(low)) - 1; power <= Math.ceil(Math.log10(high)); power++) {
    for (const step of [1, 2, 5]) found.push(Number((step * 10 ** power).toPrecision(1)));
  }
  return found.filter((tick) => tick >= low / 1.3 && tick <= high * 1.3);
}

function config() {
  const [ink, soft, line] = [tone("ink"), tone("soft"), tone("line")];
  const font = getComputedStyle(document.body).fontFamily.replaceAll('"', "'");
  return {
    aria: false,
    background: null,
    font,
    view: { stroke: null },
    axis: {
      labelColor: soft, titleColor: soft, titleFontWeight: 500, titleFontSize: 13, labelFontSize: 12, gridColor: line, domainColor: line, tickColor: line,
      labelPadding: 6, titlePadding: 8,
    },
    legend: { labelColor: ink, titleColor: soft, labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500, symbolFillColor: soft, symbolStrokeColor: soft },
    text: { color: ink, fontSize: 12 },
  };
}

/** Vega's handler of tooltips: an object of words, its first the heading. */
function showTip(_handler, event, _item, value) {
  const tip = byId("tip") ?? document.body.appendChild(make("div", { id: "tip", class: "tooltip", "aria-hidden": "true" }));
  tip.hidden = !value;
  if (!value) return;
  const [[, heading], ...rest] = Object.entries(value);
  tip.replaceChildren(
    make("strong", { text: heading }),
    make("dl", {}, ...rest.flatMap(([name, text]) => [make("dt", { text: name }), make("dd", { text })])),
  );
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${Math.max(8, event.clientY - height - 12)}px`;
}

/** Columns of a legend that fit its chart. @param {string} id of the chart @param {number} n entries @param {number} entry pixels of one */
export function legendColumns(id, n, entry) {
  return Math.max(2, Math.min(n, Math.floor(byId(id).clientWidth / entry)));
}
