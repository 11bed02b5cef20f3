/**
 * Texts in the chosen language, and the language itself.
 * Called by every module that shows words; calls the dictionaries and nothing else.
 */
import en from "./strings_en.js";

const DICTIONARIES = { en: async () => ({ default: en, sentences: [] }), ja: async () => await import("./strings_ja.js") }; // one is read
let language = "en";
let words = en;
let sentences = [];

/** The languages that the page speaks. */
export const LANGUAGES = Object.keys(DICTIONARIES);

/** @returns {string} The language now: "en" or "ja". */
export function currentLanguage() {
  return language;
}

/** @returns {string} What the browser's user reads, as far as the page speaks it. */
export function preferredLanguage() {
  const wanted = (navigator.languages ?? []).map((tag) => tag.slice(0, 2).toLowerCase());
  return wanted.find((tag) => LANGUAGES.includes(tag)) ?? "en";
}

/**
 * Show the page in another language: all elements marked with data-i18n or data-i18n-label.
 * @param {string} chosen "en" or "ja"
 */
export async function setLanguage(chosen) {
  language = LANGUAGES.includes(chosen) ? chosen : "en";
  ({ default: words, sentences } = await DICTIONARIES[language]());
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-i18n]")) element.textContent = t(element.dataset.i18n);
  for (const element of document.querySelectorAll("[data-i18n-label]")) {
    element.setAttribute("aria-label", t(element.dataset.i18nLabel));
  }
}

/**
 * A text in the language now, with its {places} filled.
 * @param {string} key
 * @param {Object<string, string|number>} [values]
 * @returns {string}
 */
export function t(key, values = {}) {
  const text = words[key] ?? en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (place, name) => String(values[name] ?? place));
}

/**
 * A sentence of the service in the language now, where the page has it in that language, else in English.
 * @param {string} sentence
 * @returns {{text: string, lang: string}}
 */
export function said(sentence) {
  const [pattern, text] = sentences.find(([pattern]) => pattern.test(sentence)) ?? [];
  return pattern ? { text: sentence.replace(pattern, text), lang: language } : { text: sentence, lang: "en" };
}

/** @returns {boolean} Whether the page has a text of this name. */
export function known(key) {
  return key in en;
}
