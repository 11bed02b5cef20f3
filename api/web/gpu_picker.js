/**
 * The choice of GPUs: chips of those chosen, a filtered list of check boxes of all.
 * Called by form.js; calls dom, i18n and format.
 */
import { byId, make } from "./dom.js";
import { t } from "./i18n.js";

/** Holds the chosen names, in the order in which they were chosen. */
export class GpuPicker {
  /** @param {() => void} changed called when the choice changes by hand */
  constructor(changed) {
    this.chosen = [];
    this.gpus = [];
    this.changed = changed;
    byId("gpu_filter").addEventListener("input", () => this.#filter());
    byId("gpu_filter").addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());
    byId("gpus_none").addEventListener("click", () => this.#choose([]));
    byId("gpus_on_offer").addEventListener("click", () => this.#choose(this.#names((gpu) => gpu.for_rent)));
    byId("gpus_measured").addEventListener("click", () => this.#choose(this.#names((gpu) => gpu.measured)));
  }

  /**
   * Take the catalogue.
   * @param {{gpu: {name: string, generation: string, memory_gib: number, aliases: string[]}, measured: boolean, for_rent: boolean}[]} gpus
   */
  load(gpus) {
    const order = [...new Set(gpus.map(({ gpu }) => gpu.generation))].reverse(); // newest first, laptops' after desktops'
    const place = ({ gpu }) => 2 * order.indexOf(gpu.generation) + /laptop|mobile|max-q/i.test(gpu.name);
    this.gpus = [...gpus].reverse().sort((a, b) => place(a) - place(b));
    this.draw();
  }

  /** Show another choice. @param {string[]} names */
  set(names) {
    this.chosen = names.map((name) => this.#fullName(name));
    this.draw();
  }

  /** Draw chips and list again, as after a change of language. */
  draw() {
    this.#drawChips();
    byId("gpu_list").replaceChildren(...this.#groups());
    this.#filter();
  }

  /** A name as the catalogue writes it, where it knows it. */
  #fullName(name) {
    const key = name.trim().toLowerCase();
    const found = this.gpus.find(({ gpu }) => [gpu.name, ...gpu.aliases].some((each) => each.toLowerCase() === key));
    return found ? found.gpu.name : name;
  }

  #names(wanted) {
    return this.gpus.filter(wanted).map((gpu) => gpu.gpu.name);
  }

  #choose(names) {
    this.chosen = names;
    this.draw();
    this.changed();
  }

  #drawChips() {
    const chips = this.chosen.map((name) => {
      const remove = make("button", { type: "button", text: "×", "aria-label": t("gpus_remove", { gpu: name }) });
      remove.addEventListener("click", () => this.#remove(name));
      return make("li", {}, name, remove);
    });
    byId("chips").replaceChildren(...(chips.length ? chips : [make("li", { class: "none", text: t("gpus_none_chosen") })]));
  }

  #remove(name) {
    const place = this.chosen.indexOf(name);
    this.#choose(this.chosen.filter((each) => each !== name));
    const left = byId("chips").querySelectorAll("button");
    (left[Math.min(place, left.length - 1)] ?? byId("picker").querySelector("summary")).focus();
  }

  /** Those that were measured and can be rented come first, the others by generation. */
  #groups() {
    const first = this.gpus.filter((each) => each.measured && each.for_rent);
    const found = first.length ? [make("h3", { text: t("gpus_first") }), ...first.map(({ gpu }) => this.#box(gpu, []))] : [];
    let generation = null;
    for (const { gpu, measured, for_rent } of this.gpus.filter((each) => !first.includes(each))) {
      if (gpu.generation !== generation) {
        generation = gpu.generation;
        found.push(make("h3", { text: generation[0].toUpperCase() + generation.slice(1) }));
      }
      found.push(this.#box(gpu, [measured && t("gpu_measured"), for_rent && t("gpu_for_rent")]));
    }
    return found;
  }

  #box(gpu, marks) {
    const box = make("input", { type: "checkbox", value: gpu.name });
    box.checked = this.chosen.includes(gpu.name);
    box.addEventListener("change", () => {
      this.chosen = box.checked ? [...this.chosen, gpu.name] : this.chosen.filter((each) => each !== gpu.name);
      this.#drawChips();
      this.changed();
    });
    const about = [`${gpu.memory_gib} ${t("gib")}`, ...marks].filter(Boolean).join(" · ");
    const search = [gpu.name, gpu.generation, gpu.architecture, ...gpu.aliases].join(" ").toLowerCase();
    return make("label", { class: "tick", "data-search": search }, box, make("span", { text: gpu.name }), make("small", { text: about }));
  }

  #filter() {
    const words = byId("gpu_filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    let heading = null;
    for (const element of byId("gpu_list").children) {
      if (element.tagName === "H3") {
        heading = element;
        heading.hidden = true;
        continue;
      }
      element.hidden = !words.every((word) => ` ${element.dataset.search}`.includes(word.length < 3 ? ` ${word}` : word));
      if (!element.hidden && heading) heading.hidden = false;
    }
  }
}
