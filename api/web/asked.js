/**
 * The question that the answer shown is to, in a line, and whether the form has another one by now.
 * Called by main.js; calls dom, format, i18n and question.
 */
import { byId, make } from "./dom.js";
import { count } from "./format.js";
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
    state.precision ? t(`precision_${state.precision}`) : `${t("precision")}: ${t("precision_usual")}`,
    state.memory_format && t(`memory_format_${state.memory_format}`),
    ...MODE.filter((name) => state[name] !== FIRST[name]).map((name) => word(name, state[name])),
    state.n_gpus && t("together", { n: count(typed(state.n_gpus)) }),
    state.host,
    state.autotune ? "autotune" : "",
    state.spot ? t("spot") : "",
  ];
  const mark = stale ? make("span", { class: "badge warn", text: t("stale") }) : null;
  byId("asked").replaceChildren(make("span", { text: `${t("answer_to")} ` }), make("strong", { text: words.filter(Boolean).join(" · ") }), ...(mark ? [mark] : []));
}

function word(name, value) {
  const text = t(`${name}_${value}`);
  return text === `${name}_${value}` ? value : text;
}
