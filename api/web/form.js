/**
 * The form: shows a question, reads what people changed, and the file that they chose.
 * Called by main.js; calls the GPU picker, upload, and the dictionary for the words of lists.
 */
import { byId, fill, make } from "./dom.js";
import { clearError, clearGeneral, showError } from "./errors.js";
import { count, number } from "./format.js";
import { GpuPicker } from "./gpu_picker.js";
import { currentLanguage, known, t } from "./i18n.js";
import { FIRST, learn } from "./question.js";

const LISTS = ["data_set", "host"]; // words that the catalogue lists

/** The form with its lists. */
export class Form {
  constructor() {
    this.element = byId("question");
    this.picker = new GpuPicker(() => {
      clearError("gpus");
      byId("gpus").dispatchEvent(new Event("input", { bubbles: true }));
    });
    this.upload = null;
    this.lists = { cnns: [], gpus: [], data_sets: [], hosts: [], options: [] };
    this.wantedFile = "";
    this.element.addEventListener("input", (event) => this.#touched(event.target));
    byId("file").addEventListener("change", () => this.#read());
  }

  /** Take the catalogue. @param {typeof this.lists} lists */
  load(lists) {
    this.lists = { ...lists, options: learn(lists.options) };
    this.#build();
    this.picker.load(lists.gpus);
    this.draw();
  }

  /** Names of GPUs on which something was measured. */
  get measured() {
    return new Set(this.lists.gpus.filter((each) => each.measured).map((each) => each.gpu.name));
  }

  /** Write the lists again, as after a change of language. */
  draw() {
    const own = ["", t("data_set_own")];
    fill(byId("cnn"), [...this.lists.cnns.map((cnn) => [cnn.cnn, cnn.cnn]), ["", t("cnn_own")]]);
    fill(byId("data_set"), [...this.lists.data_sets.map((set) => [set.name, set.name]), own]);
    fill(byId("host"), [["", t("host_usual")], ...this.lists.hosts.map((host) => [host, host])]);
    for (const { name, kind, default: first, usual, choices, needs } of this.lists.options) {
      if (kind !== "choice") continue;
      const words = choices.filter((word) => !(word in needs)).map((word) => [word, text(`${name}_${word}`, word)]);
      fill(byId(name), first === null ? [["", text(`${name}_usual`, usual)], ...words] : words);
    }
    this.picker.draw();
    this.#about();
  }

  /** Show a question. @param {typeof FIRST} state */
  show(state) {
    for (const [name, value] of Object.entries(state)) this.#set(name, value);
    this.picker.set(state.gpus);
    this.wantedFile = state.source === "file" ? state.file : "";
    if (this.upload?.name !== state.file) this.#forgetFile();
    byId("more").open ||= [...byId("more").querySelectorAll("[name]")].some(({ name }) => state[name] !== FIRST[name]);
    this.#about();
  }

  /** @returns {typeof FIRST} the question as it stands */
  read() {
    const state = { ...FIRST, gpus: [...this.picker.chosen] };
    for (const name of Object.keys(FIRST)) {
      const control = this.element.elements[name];
      if (name === "gpus" || name === "file" || !control) continue;
      state[name] = control.type === "checkbox" ? control.checked : control.value;
    }
    state.file = state.source === "file" ? (this.upload?.name ?? this.wantedFile) : "";
    return state;
  }

  /** Say what the service read in the file, if it is still the chosen one. */
  describe(upload, cnn) {
    if (upload !== this.upload) return;
    const about = { parameters: number(cnn.parameters / 1e6), flops: number(cnn.training_flops_per_image / 1e9) };
    byId("file-about").textContent = [
      upload.about,
      t("n_layers", { n: count(cnn.layer_table.layers.length) }),
      t("pixels", { size: cnn.image_size }),
      t("cnn_about", about),
    ].join(" · ");
  }

  /** Make a field for each option: where the page has a place for it, else under More. */
  #build() {
    const options = new Map(this.lists.options.map((option) => [option.name, option]));
    for (const place of this.element.querySelectorAll("[data-options]")) {
      for (const name of place.dataset.options.split(" ").filter((each) => options.has(each))) {
        place.append(fieldOf(options.get(name), place.dataset.words));
        options.delete(name);
      }
    }
    for (const option of options.values()) byId(option.kind === "flag" ? "more-ticks" : "more-fields").append(fieldOf(option));
  }

  #set(name, value) {
    const control = this.element.elements[name];
    if (name === "gpus" || name === "file" || !control) return;
    if (control.type === "checkbox") control.checked = value;
    else if (control.tagName === "SELECT") fill(control, [...control.options].map((each) => [each.value, each.text]), value);
    else control.value = value;
  }

  #touched(control) {
    clearError(control.name);
    if (control.id === "cnn" && !control.value) this.#ownCnn(control);
    this.#about();
  }

  /** The last of the CNNs is a file: its field is shown, and the list keeps a CNN. */
  #ownCnn(list) {
    list.value = FIRST.cnn;
    this.element.elements.source.value = "file";
    this.element.dispatchEvent(new Event("own"));
  }

  /** What depends on other fields: which are shown, hints, usual values. */
  #about() {
    showUnits();
    const { source, cnn, data_set } = this.element.elements;
    const zoo = source.value === "zoo";
    byId("field-cnn").hidden = !zoo;
    byId("field-file").hidden = zoo;
    byId("line-file").hidden = zoo;
    byId("line-file").textContent = `${t("line_cnn")} ${this.upload?.name || this.wantedFile || t("cnn_own")}`;
    const chosen = this.lists.cnns.find((each) => each.cnn === cnn.value);
    const set = this.lists.data_sets.find((each) => each.name === data_set.value);
    byId("cnn-about").textContent = chosen ? cnnText(chosen) : "";
    byId("samples").placeholder = set ? t("all_of", { samples: count(set.samples) }) : "";
    const usual = set?.image_size ?? chosen?.usual_image_size;
    byId("image_size").placeholder = zoo ? (usual ? t("usual", { size: usual }) : "") : t("of_file");
    if (this.wantedFile && !this.upload) byId("file-about").textContent = t("file_again", { name: this.wantedFile });
  }

  #forgetFile() {
    this.upload = null;
    byId("file").value = "";
    byId("file-about").textContent = "";
  }

  async #read() {
    const [file] = byId("file").files;
    clearError("file");
    this.upload = null;
    this.wantedFile = "";
    byId("file-about").textContent = "";
    if (!file) return;
    try {
      this.reading = import("./upload.js").then(({ readUpload }) => readUpload(file)); // few visits need it
      const upload = await this.reading;
      if (byId("file").files[0] !== file) return; // another one was chosen meanwhile
      this.upload = upload;
      byId("file-about").textContent = upload.about;
      if (upload.layer_table?.step) {
        byId("batch_sizes").value = upload.layer_table.step.batch_size; // the training itself; others may be typed
        clearError("batch_sizes");
      }
    } catch (error) {
      if (byId("file").files[0] !== file) return;
      clearError("file");
      clearGeneral();
      showError("file", error.message, currentLanguage());
    }
  }
}

/** The page's words for a key, else the service's. */
function text(key, other) {
  return known(key) ? t(key) : other;
}

/** An element with the label of an option, in the language now and after it changes. */
function label(tag, { name, help }, attributes = {}) {
  return make(tag, { text: text(name, help), "data-i18n": known(name) ? name : null, ...attributes });
}

const UNITS = { usd: "unit_usd", hours: "unit_h" };
const HINTS = { provider: "aws, gcp, !vast", offer_region: "eu, us, us-east-1" }; // what such names look like

/** Units stay beside what is typed, but for text with a unit of its own, such as 2d. */
function showUnits() {
  for (const unit of document.querySelectorAll(".unit")) unit.hidden = /[a-z$]/i.test(byId(unit.dataset.of).value);
}

/**
 * @param {import("./question.js").Option} option
 * @param {string} [words] where labels are words of a sentence, what their keys begin with; messages stand below it
 */
function fieldOf(option, words = "") {
  const { name, kind } = option;
  if (kind === "flag") return make("label", { class: "tick" }, make("input", { type: "checkbox", id: name, name }), label("span", option));
  const named = words ? { "aria-label": text(name, option.help), "data-i18n-label": name } : {};
  const unit = words && UNITS[kind] ? make("span", { class: `unit ${kind}`, "aria-hidden": "true", "data-of": name, "data-i18n": UNITS[kind], text: t(UNITS[kind]) }) : null;
  const about = { id: name, name, "aria-describedby": `${name}-error`, placeholder: HINTS[name], ...named };
  const mode = { whole: "numeric", number: "decimal", hours: "decimal" }[kind];
  const control = kind === "choice" || LISTS.includes(name) ? make("select", about) : make("input", { ...about, inputmode: mode, autocomplete: "off" });
  const error = make("p", { class: "error", id: `${name}-error` });
  if (words) byId("line-errors").append(error);
  return make("div", { class: "field", "data-field": name }, label("label", { ...option, name: `${words}${name}` }, { for: name }), unit, control, words ? null : error);
}

function cnnText(cnn) {
  const values = { parameters: number(cnn.parameters / 1e6), flops: number(cnn.training_flops_per_image / 1e9) };
  return t("cnn_about", values);
}
