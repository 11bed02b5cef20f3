/**
 * Sortable tables and their CSV.
 * Called by main.js and explanation.js with columns and rows; calls dom, format and i18n.
 */
import { download, make } from "./dom.js";
import { count, reasonText } from "./format.js";
import { t } from "./i18n.js";

/**
 * @typedef {object} Column
 * @property {string} key
 * @property {string} title
 * @property {(row: object) => (string|Node|Node[])} cell
 * @property {(row: object) => (number|string|boolean|null)} value what rows are sorted by
 * @property {string} [hint] what the heading says where it is pointed at
 * @property {boolean} [text] left-aligned
 * @property {boolean} [head] the row's own heading
 * @property {boolean} [extra] shown only with all columns
 * @property {boolean} [line] shown in the one line that a row is on a phone
 *
 * @typedef {object} Group rows that are folded away behind the best of them
 * @property {(row: object) => string} of
 * @property {(row: object) => boolean} best
 * @property {(row: object, n: number) => string} label of the button that unfolds the others
 */

const FIRST_ROWS = 15; // of more than these
const MOST_SHOWN = 18;

/** A table in a place of the page; keeps its order when it is drawn again. */
export class Table {
  /**
   * @param {HTMLElement} place
   * @param {(message: string) => void} say to the live region
   */
  constructor(place, say) {
    this.place = place;
    this.say = say;
    this.order = { key: null, down: false };
    this.rows = [];
  }

  /** @param {{caption: string, columns: Column[], rows: object[], group?: Group}} content */
  draw({ caption, columns, rows, group = null }) {
    if (group === null || this.group === undefined) this.open = new Set();
    Object.assign(this, { caption, columns, given: rows, group });
    this.#sort();
    const head = make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...columns.map((column) => this.#heading(column))));
    this.body = make("tbody", { role: "rowgroup" });
    this.#fill();
    this.place.classList.toggle("lined", columns.some((column) => column.line));
    const table = make("table", { role: "table" }, make("caption", { class: "unseen", text: caption }), head, this.body);
    const label = t("scrollable", { caption });
    this.place.replaceChildren(...this.#whole(), make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table));
    this.#oneStop(head);
  }

  /** The button for what is not shown at first: further columns, and rows after the first. */
  #whole() {
    const n = this.group ? new Set(this.given.map(this.group.of)).size : this.given.length;
    if (n <= MOST_SHOWN && !this.columns.some((column) => column.extra)) return [];
    const text = () => t(this.place.classList.contains("whole") ? "table_less" : "table_whole", { rows: count(n), columns: count(this.columns.length), caption: this.caption });
    const button = make("button", { type: "button", class: "quiet all", text: text() });
    button.addEventListener("click", () => {
      this.place.classList.toggle("whole");
      this.#fill();
      button.textContent = text();
    });
    return [button];
  }

  #heading(column) {
    const button = make("button", { type: "button", text: column.title, title: column.hint });
    button.addEventListener("click", () => this.#by(column));
    return make("th", { scope: "col", role: "columnheader", class: classOf(column), "aria-sort": this.#sign(column), "data-key": column.key }, button);
  }

  /** Headings are one stop of the Tab key; arrows go from one to the next. @param {HTMLElement} head */
  #oneStop(head) {
    const buttons = [...head.querySelectorAll("button")];
    const stop = (button) => buttons.forEach((each) => { each.tabIndex = each === button ? 0 : -1; });
    stop(buttons[0]);
    head.addEventListener("focusin", (event) => stop(event.target));
    head.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const seen = buttons.filter((button) => button.offsetParent);
      if (!step) return;
      event.preventDefault();
      seen[(seen.indexOf(event.target) + step + seen.length) % seen.length].focus();
    });
  }

  #sign(column) {
    if (this.order.key !== column.key) return "none";
    return this.order.down ? "descending" : "ascending";
  }

  #by(column) {
    this.order = { key: column.key, down: this.order.key === column.key && !this.order.down };
    this.#sort();
    this.#fill();
    this.place.querySelectorAll("thead th").forEach((head, i) => head.setAttribute("aria-sort", this.#sign(this.columns[i])));
    this.say(t("sorted", { column: column.title, order: t(this.order.down ? "descending" : "ascending") }));
  }

  #sort() {
    const column = this.columns.find((each) => each.key === this.order.key);
    this.rows = [...this.given];
    if (!column) return;
    const sign = this.order.down ? -1 : 1;
    this.rows.sort((a, b) => compared(column.value(a), column.value(b), sign));
  }

  /** The lines that are shown: making hundreds of others takes longer than all else of a page. */
  #fill() {
    const most = (list) => (list.length > MOST_SHOWN && !this.place.classList.contains("whole") ? list.slice(0, FIRST_ROWS) : list);
    const lines = this.group ? most(this.#grouped()) : most(this.rows).map((row) => this.#line(row));
    if (!lines.length) lines.push(make("tr", { role: "row" }, make("td", { role: "cell", class: "text line", colspan: this.columns.length, text: t("none_found") })));
    this.body.replaceChildren(...lines);
  }

  /** The best row of each group, in the order of the rows, and after it the others where they are unfolded. */
  #grouped() {
    const groups = new Map();
    for (const row of this.rows) groups.set(this.group.of(row), [...(groups.get(this.group.of(row)) ?? []), row]);
    const bests = [...groups].map(([name, rows]) => ({ name, rows, best: rows.find(this.group.best) ?? rows[0] }));
    bests.sort((a, b) => this.rows.indexOf(a.best) - this.rows.indexOf(b.best));
    return bests.flatMap(({ name, rows, best }) => {
      const others = rows.filter((row) => row !== best);
      const line = this.#line(best);
      if (others.length) line.querySelector("th").append(this.#unfolder(name, best, others.length));
      return [line, ...(this.open.has(name) ? others.map((row) => this.#line(row, "more")) : [])];
    });
  }

  #unfolder(name, best, n) {
    const is = this.open.has(name);
    const button = make("button", { type: "button", class: "unfold", "aria-expanded": String(is), "aria-label": this.group.label(best, n), "data-group": name, text: `${is ? "−" : "+"}${n}` });
    button.addEventListener("click", () => {
      if (!this.open.delete(name)) this.open.add(name);
      this.#fill();
      [...this.body.querySelectorAll(".unfold")].find((each) => each.dataset.group === name)?.focus();
    });
    return button;
  }

  #line(row, kind = null) {
    return make("tr", { class: kind, role: "row" }, ...this.columns.map((column) => cell(column, row)));
  }

  /** Give the rows, in their order, as CSV: every field of the service's answer. @param {string} name of the file */
  save(name) {
    download(name, "text/csv;charset=utf-8", csv(this.rows));
  }
}

function classOf(column) {
  return [column.text && "text", column.extra && "extra", column.line && "line"].filter(Boolean).join(" ") || null;
}

function cell(column, row) {
  const content = [column.cell(row)].flat();
  const attributes = { class: classOf(column), "data-label": column.title };
  return column.head
    ? make("th", { scope: "row", role: "rowheader", ...attributes }, ...content)
    : make("td", { role: "cell", ...attributes }, ...content);
}

/** Nothing comes last, whichever way rows are sorted. */
function compared(a, b, sign) {
  const none = (value) => value === null || value === undefined || value === "";
  if (none(a) || none(b)) return none(a) - none(b);
  return sign * (typeof a === "string" ? a.localeCompare(String(b), "en", { numeric: true }) : a - b);
}

/**
 * Rows as CSV (RFC 4180), lists joined by "; ". A text that a spreadsheet would take for a formula gets an apostrophe.
 * @param {object[]} rows
 */
export function csv(rows) {
  const names = Object.keys(rows[0] ?? {});
  return [names, ...rows.map((row) => names.map((name) => row[name]))]
    .map((cells) => `${cells.map(csvCell).join(",")}\r\n`).join("");
}

/** A reason with its kind, and what energy rests on, as tables of the command line write them. */
function asText(value) {
  if (Array.isArray(value)) return value.map(asText).join("; ");
  if (typeof value !== "object") return String(value);
  return "remedy" in value ? reasonText(value) : value.text;
}

function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string" && typeof value !== "object") return String(value);
  const text = asText(value).replace(/^(?=[=+\-@\t\r])/, "'");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
