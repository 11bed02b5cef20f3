/** Small helpers for elements. Called by everything that draws; calls nothing. */

/** @param {string} id @returns {HTMLElement} */
export const byId = (id) => document.getElementById(id);

/**
 * Make an element.
 * @param {string} tag
 * @param {Object<string, *>} [attributes] `text` and `on…` handlers included; null and false are left out
 * @param {...(Node|string|null)} children
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Fill a select, keeping its value where it is still there. */
export function fill(select, options, value = select.value) {
  select.replaceChildren(...options.map(([key, text]) => make("option", { value: key, text })));
  if (value && !options.some(([key]) => key === value)) select.append(make("option", { value, text: value }));
  select.value = value;
}

/** Give the user a file. */
export function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Copy text; whether the browser allowed it. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
