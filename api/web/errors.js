/**
 * Refusals beside the field at fault: aria-invalid, a message, and focus on the first.
 * Called by main.js and form.js; calls dom and i18n. The service's words are English, and marked so where the page has no others.
 */
import { byId } from "./dom.js";
import { said } from "./i18n.js";

const FIELD_OF = { precisions: "precision", memory_formats: "memory_format", onnx: "file", layer_table: "file", gpu: "gpus" };

/**
 * Show a refusal.
 * @param {{detail: string, error?: string, errors?: {field: string, detail: string}[]}} problem
 * @param {string} [usual] the field that is at fault where nothing says so
 * @returns {HTMLElement[]} what is at fault, to focus
 */
export function showProblem(problem, usual) {
  const faults = problem.errors?.length ? problem.errors : [{ field: "", detail: problem.detail }];
  return faults.map(({ field, detail }) => {
    const name = fieldOf(field) ?? (problem.status < 500 ? usual : null);
    const { text, lang } = said(detail);
    return name ? showError(name, name === "file" && field ? `${field}: ${text}` : text, lang) : showGeneral(text, lang);
  });
}

/**
 * Show a message beside a field.
 * @param {string} name
 * @param {string} detail
 * @param {string} [language] of the message
 * @returns {HTMLElement} what to focus
 */
export function showError(name, detail, language = "en") {
  const place = byId(`${name}-error`);
  if (!place || byId(name).closest("[data-field]").hidden) return showGeneral(detail, language);
  const more = place.closest("details");
  if (more) more.open = true;
  const control = byId(name);
  control.setAttribute("aria-invalid", "true");
  place.lang = language;
  const whose = place.parentElement.id === "line-errors" && !place.textContent ? `${control.getAttribute("aria-label")}: ` : "";
  if (!place.textContent.includes(detail)) place.textContent = [place.textContent, whose + detail].filter(Boolean).join(" ");
  return control;
}

/** Take a field's message away. @param {string} name */
export function clearError(name) {
  const place = byId(`${name}-error`);
  if (!place) return;
  place.textContent = "";
  byId(name).removeAttribute("aria-invalid");
}

/** Take all messages away. */
export function clearErrors() {
  for (const place of document.querySelectorAll("#question .error")) clearError(place.id.replace(/-error$/, ""));
  clearGeneral();
}

/** Take away the message that is about no field. */
export function clearGeneral() {
  byId("problem").hidden = true;
  byId("problem").textContent = "";
}

function showGeneral(detail, language) {
  const place = byId("problem");
  place.lang = language;
  place.hidden = false;
  if (!place.textContent.includes(detail)) place.textContent = [place.textContent, detail].filter(Boolean).join(" ");
  return place;
}

/** The form's field for the service's, such as gpus for gpus[0]. */
function fieldOf(field) {
  const name = field.replace(/[[.].*/, "");
  const known = FIELD_OF[name] ?? name;
  return known && byId(`${known}-error`) ? known : null;
}
