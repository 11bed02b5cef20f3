/**
 * The decision in large type: which GPU to rent, hours and dollars with their intervals; what would change it most, applied
 * by one click; what else would do. Whoever extrapolates says so where it is named, beside the best that was measured.
 * Called by main.js; calls columns, dom, format and i18n.
 */
import { extrapolationMark } from "./columns.js";
import { byId, make } from "./dom.js";
import { count, dollars, duration, durations, epochCount, number, share, shortGpu } from "./format.js";
import { said, t } from "./i18n.js";

const MOST_CHANGES = 3;
const WORTH_IT = 0.95; // of time or cost, what a change leaves at most to be worth a button

/**
 * @param {object} comparison the service's answer
 * @param {{budget: ?number, deadline: ?number}} limits in US$ and hours
 * @param {{gpu: string, precision: string}[]} leftOut GPUs that lack the precision
 * @param {(patch: Object<string, string>) => void} apply asks the question with other fields
 */
export function drawDecision({ verdict, rows }, limits, leftOut, apply) {
  const parts = verdict.best ? decided(verdict, rows, limits, apply) : [make("p", { class: "none", ...said(verdict.sentence) })];
  const left = leftOut.length
    ? [make("p", { class: "hint", text: t("lacks", { precision: t(`precision_${leftOut[0].precision}`), gpus: leftOut.map(({ gpu }) => shortGpu(gpu)).join(", ") }) })]
    : [];
  byId("decision").replaceChildren(...parts, ...left);
}

function decided(verdict, rows, limits, apply) {
  const { best } = verdict;
  const row = rows.find((each) => each.offer === best.offer && each.gpu === best.gpu) ?? rows[0];
  const title = verdict.holds_wishes === false ? "nearest" : best.total_cost_usd === null ? "take" : "rent";
  return [
    make("p", { class: "eyebrow", text: t(title) }),
    make("h2", { id: "decision-title" }, shortGpu(best.gpu), badgeOf(best)),
    make("p", { class: "instance", text: [best.offer || t("no_price"), t("batch_of", { batch: count(best.batch_size) }), t(`precision_${best.precision}`)].join(" · ") }),
    make(
      "dl",
      { class: "figures" },
      figure([t("time_of", { epochs: epochCount(row.epochs) }), row.trials > 1 ? t("plan_trials", { n: count(row.trials) }) : ""].filter(Boolean).join(" "), duration(3600 * best.total_time_h), hours(best)),
      best.total_cost_usd === null ? null : figure(t("total_cost"), dollars(best.total_cost_usd), usd(best)),
    ),
    ...notes(verdict, limits),
    ...caution(verdict),
    ...changesList(changesOf(verdict, row), best, apply),
    ...others(verdict),
    ...remaining(verdict.hints),
  ];
}

function figure(title, value, interval) {
  return make("div", {}, make("dt", { text: title }), make("dd", {}, make("strong", { text: value }), " ", make("span", { text: interval, title: t("interval") })));
}

const hours = (choice) => durations(...[choice.total_low_h, choice.total_high_h, choice.total_time_h].map((h) => 3600 * h));
const usd = (choice) => `${dollars(choice.total_low_usd)}–${number(choice.total_high_usd)}`;

/** Budget, deadline and how many of the rented GPUs train. */
function notes({ best, binding, holds_wishes }, { budget, deadline }) {
  const limits = [budget && t("limit_budget", { value: dollars(budget) }), deadline && t("limit_deadline", { value: `${count(deadline)} ${t("unit_h")}` })].filter(Boolean);
  const chance = best.chance === null ? "" : t("likely", { share: share(best.chance) });
  const broken = holds_wishes === false ? binding.map((limit) => make("span", { class: "badge bad", text: t(`over_${limit}`) })) : [];
  const wished = limits.length ? make("p", { class: "limits" }, [...limits, chance].filter(Boolean).join(" · "), " ", ...broken) : null;
  return [wished, rented(best)].filter(Boolean);
}

/** How many GPUs are paid for and how many of them train, where there is more than one. */
function rented({ offer_gpu_count, gpus_used }) {
  if (!(offer_gpu_count > 1)) return null;
  const words = gpus_used >= offer_gpu_count ? "rented_all" : gpus_used === 1 ? "rented_one" : "rented";
  return make("p", { class: "rented", text: t(words, { rented: count(offer_gpu_count), used: count(gpus_used) }) });
}

/** That the choice extrapolates, why, and the best that does not. */
function caution({ best, measured }) {
  if (!best.extrapolates.length) return [];
  const said = t(best.extrapolates.some(({ kind }) => kind === "gpu") ? "not_measured" : "beyond_measured", { gpu: shortGpu(best.gpu) });
  const instead = measured ? ` ${t("measured_instead", { gpu: shortGpu(measured.gpu), offer: measured.offer, took: took(measured) })}` : "";
  return [make("div", { class: "caution" }, make("p", { text: said + instead }), extrapolationMark(best, t("why")))];
}

function took(choice) {
  return [duration(3600 * choice.total_time_h), choice.total_cost_usd === null ? "" : dollars(choice.total_cost_usd)].filter(Boolean).join(", ");
}

/** Other fields of the question that would save most, each with the choice that would come of it. */
function changesOf(verdict, row) {
  const fast = verdict.best_if_fast && modeOf(verdict.best_if_fast);
  const compiled = { capture: "compile" };
  const batch = row.fastest_batch_size !== row.batch_size && faster(verdict.best, row);
  const found = [
    fast && { label: modeName(verdict.best_if_fast), patch: fast, choice: verdict.best_if_fast },
    verdict.compiled && { label: t("capture_compile"), patch: compiled, choice: verdict.compiled },
    fast && verdict.compiled_fast && { label: `${modeName(verdict.compiled_fast)} + ${t("capture_compile")}`, patch: { ...modeOf(verdict.compiled_fast), ...compiled }, choice: verdict.compiled_fast },
    batch && { label: t("batch_of", { batch: count(row.fastest_batch_size) }), patch: { batch_sizes: String(row.fastest_batch_size) }, choice: batch },
  ].filter(Boolean);
  const left = ({ choice }) => weight(choice) / weight(verdict.best);
  return found.filter((change) => left(change) <= WORTH_IT).sort((a, b) => left(a) - left(b)).slice(0, MOST_CHANGES);
}

const weight = (choice) => choice.total_cost_usd ?? choice.total_time_h;
const modeOf = ({ precision, memory_format }) => ({ precision, memory_format });
const modeName = ({ precision, memory_format }) =>
  [t(`precision_${precision}`), memory_format === "nchw" ? "" : t(`memory_format_${memory_format}`)].filter(Boolean).join(", ");

/** The same offer at its fastest batch size: times and costs in the ratio of the epochs. */
function faster(best, row) {
  const ratio = row.fastest_epoch_time_s / row.epoch_time_s;
  const scaled = ["total_time_h", "total_low_h", "total_high_h", "total_cost_usd", "total_low_usd", "total_high_usd"];
  return { ...best, ...Object.fromEntries(scaled.map((name) => [name, best[name] === null ? null : best[name] * ratio])) };
}

function changesList(changes, best, apply) {
  if (!changes.length) return [];
  const items = changes.map(({ label, patch, choice }) => {
    const button = make("button", { type: "button", class: "quiet", "aria-label": t("apply", { change: label }), text: label });
    button.addEventListener("click", () => apply(patch));
    const where = choice.gpu === best.gpu ? "" : t("on_gpu", { gpu: shortGpu(choice.gpu) });
    return make("li", {}, button, make("span", {}, make("strong", { text: took(choice) }), ` (${hours(choice)}) ${where}`));
  });
  return [make("h3", { text: t("hints_title") }), make("ul", { class: "changes" }, ...items)];
}

/** The cheapest, the fastest and the best that was measured, where these are others. */
function others(verdict) {
  const roles = new Map();
  for (const role of ["cheapest", "fastest", "measured"]) {
    const choice = verdict[role];
    if (!choice || same(choice, verdict.best)) continue;
    const known = [...roles.keys()].find((each) => same(each, choice)) ?? choice;
    roles.set(known, [...(roles.get(known) ?? []), t(role)]);
  }
  if (!roles.size) return [];
  const items = [...roles].map(([choice, words]) =>
    make("li", {}, make("span", { class: "role", text: words.join(" · ") }), make("strong", {}, shortGpu(choice.gpu), badgeOf(choice)), make("span", {}, took(choice), make("small", { text: ` ${choice.offer}` }))),
  );
  return [make("h3", { text: t("others_title") }), make("ul", { class: "others" }, ...items)];
}

const same = (a, b) => a.offer === b.offer && a.gpu === b.gpu;

function badgeOf(choice) {
  return choice.extrapolates.length ? make("span", { class: "badge warn", text: t("extrapolated") }) : null;
}

/** What else the service has to say. */
function remaining(hints) {
  const texts = hints.filter(({ priority }) => priority > 0).map(({ text }) => make("li", said(text)));
  return texts.length ? [make("details", { class: "hints" }, make("summary", { text: t("more_hints") }), make("ul", {}, ...texts))] : [];
}
