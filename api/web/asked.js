/**
 * The question that the answer shown is to, in a line, and whether the form has another one by now.
 * Called by main.js; calls dom, format, i18n and question.
 */
import { byId, make } from "./dom.js";
import { count, dollars, shortGpu } from "./format.js";
import { t } from "./i18n.js";
import { FIRST, typed } from "./question.js";

const MODE = ["framework", "capture", "optimizer", "method"];

/**
 * Say it.
 * @param {typeof FIRST} state the question that was answered
 * @param {number} image_size of the answer
 * @param {boolean} stale whether the form asks something else
 */
export function drawAsked(state, image_size, stale) {
  const words = [
    state.source === "zoo" ? state.cnn : state.file,
    t("pixels", { size: image_size }),
    [state.data_set, state.samples.trim() && t("n_samples", { samples: count(typed(state.samples)) })].filter(Boolean).join(": "),
    state.precision ? t(`precision_${state.precision}`) : `${t("precision")}: ${t("precision_default")}`,
    t(`memory_format_${state.memory_format}`),
    ...MODE.filter((name) => state[name] !== FIRST[name]).map((name) => word(name, state[name])),
    state.n_gpus && t("together", { n: count(typed(state.n_gpus)) }),
    state.host,
    state.autotune ? "autotune" : "",
    state.spot ? t("spot") : "",
  ];
  const mark = stale ? make("span", { class: "badge warn", text: t("stale") }) : null;
  byId("asked").replaceChildren(`${t("answer_to")} `, make("strong", { text: words.filter(Boolean).join(" · ") }), ...limits(state), ...(mark ? [mark] : []));
}

/** Budget and deadline, kept in sight: tiles, charts and tables mark what breaks them. */
function limits(state) {
  const given = [["limit_budget", state.budget_usd, dollars], ["limit_deadline", state.deadline_h, (hours) => `${count(hours)} ${t("unit_h")}`]];
  return given.filter(([, text]) => text.trim()).map(([key, text, shown]) => make("span", { class: "badge limit", text: t(key, { value: shown(typed(text)) }) }));
}

/**
 * Say in a sentence what the comparison comes to, folded what would change it, and which GPUs could not be asked about.
 * @param {?{sentence: string, hints: {text: string}[]}} verdict of the service, if it gives one
 * @param {string[]} lacking GPUs that lack the precision
 * @param {string} precision
 */
export function drawVerdict(verdict, lacking, precision) {
  const said = verdict ? [make("p", { class: "verdict", lang: "en", text: verdict.sentence })] : [];
  if (verdict?.hints.length) {
    const hints = make("ul", { lang: "en" }, ...verdict.hints.map(({ text }) => make("li", { text })));
    said.push(make("details", { class: "hints" }, make("summary", { text: t("hints_title") }), hints));
  }
  const left = lacking.length ? [make("p", { class: "hint", text: t("lacks", { precision: t(`precision_${precision}`), gpus: lacking.map(shortGpu).join(", ") }) })] : [];
  byId("verdict").replaceChildren(...said, ...left);
}

function word(name, value) {
  const text = t(`${name}_${value}`);
  return text === `${name}_${value}` ? value : text;
}
