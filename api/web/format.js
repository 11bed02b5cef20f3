/**
 * Numbers as people read them: times, money, bytes, counts.
 * Called by tables, charts and tiles; calls i18n for the language and units.
 */
import { currentLanguage, t } from "./i18n.js";

const STEPS = [
  [86400 * 2, 86400, "unit_d"],
  [3600, 3600, "unit_h"],
  [60, 60, "unit_min"],
  [1, 1, "unit_s"],
  [0, 0.001, "unit_ms"],
];

/**
 * A number with so many significant digits and no exponent; a whole one as it is.
 * @param {?number} value
 * @param {number} [digits]
 */
export function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const exact = Number.isInteger(value) || value >= 10 ** digits;
  const options = exact ? { maximumFractionDigits: 0 } : { minimumSignificantDigits: digits, maximumSignificantDigits: digits };
  return new Intl.NumberFormat(currentLanguage(), options).format(value);
}

/** A count, in full. @param {?number} value */
export function count(value) {
  return value === null || value === undefined ? "–" : new Intl.NumberFormat(currentLanguage()).format(value);
}

/** Epochs in words. @param {number} n */
export function epochCount(n) {
  return n === 1 ? t("one_epoch") : t("n_epochs", { n: count(n) });
}

/** Seconds in the unit that suits their size, such as "12.5 min". @param {?number} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const [, size, unit] = unitOf(seconds);
  return `${number(seconds / size)} ${t(unit)}`;
}

/** An interval in the unit of what lies in it, such as "10.1–12.5 min". */
export function durations(low, high, middle = high) {
  if (low === null || low === undefined || high === null || high === undefined) return "–";
  const [, size, unit] = unitOf(middle);
  return `${number(low / size)}–${number(high / size)} ${t(unit)}`;
}

/** Dollars. @param {?number} value */
export function dollars(value) {
  if (value === null || value === undefined) return "–";
  return `$${number(value, value >= 1000 ? 4 : 3)}`;
}

/** Watt-hours in Wh, kWh or MWh. @param {?number} wattHours */
export function energy(wattHours) {
  if (wattHours === null || wattHours === undefined) return "–";
  const [size, unit] = wattHours < 1e3 ? [1, "Wh"] : wattHours < 1e6 ? [1e3, "kWh"] : [1e6, "MWh"];
  return `${number(wattHours / size)} ${unit}`;
}

/** Grams in g, kg or t. @param {?number} value */
export function grams(value) {
  if (value === null || value === undefined) return "–";
  const [size, unit] = value < 1e3 ? [1, "g"] : value < 1e6 ? [1e3, "kg"] : [1e6, "t"];
  return `${number(value / size)} ${unit}`;
}

/** Bytes in KiB or MiB. @param {number} bytes */
export function size(bytes) {
  return bytes < 2 ** 20 ? `${number(Math.max(1, bytes) / 1024)} KiB` : `${number(bytes / 2 ** 20)} MiB`;
}

/** A chance in whole percent, without what no data can tell from 0 or 1. @param {number} chance */
export function share(chance) {
  return chance > 0.99 ? ">99" : chance < 0.01 ? "<1" : number(Math.round(100 * chance));
}

const shortNames = new Map();

/** Take the GPUs of the catalogue, which answers name as the command line does. @param {{gpu: {name: string, aliases: string[]}}[]} gpus */
export function learnGpus(gpus) {
  for (const { gpu } of gpus) {
    const plain = gpu.name.replace(/^NVIDIA /, "").replace(/^Tesla /, "").replace(/^GeForce /, "");
    const [alias] = gpu.aliases;
    shortNames.set(gpu.name, alias && /^\p{L}/u.test(alias) && alias.length < plain.length ? alias : plain);
  }
}

/** A GPU's name as people write it, short enough for a label. @param {string} name */
export function shortGpu(name) {
  return shortNames.get(name) ?? name;
}

function unitOf(seconds) {
  return STEPS.find(([from]) => seconds >= from) ?? STEPS[STEPS.length - 1];
}

/** Why a row extrapolates, in the service's English. @param {{kind: string, text: string}} reason */
export function reasonText({ kind, text }) {
  return `${kind}: ${text}`;
}
